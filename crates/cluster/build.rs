//! Makes Rust of the published interface, without `protoc`.

use std::error::Error;

const ROOT: &str = "proto";
const ADMIN: &str = "proto/cairn/admin/v1/admin.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={ROOT}");
    let files = protox::compile([ADMIN], [ROOT])?;
    tonic_prost_build::configure().build_transport(false).compile_fds(files)?;
    Ok(())
}
