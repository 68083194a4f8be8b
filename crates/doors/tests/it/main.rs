//! One binary for all tests of the doors.
