//! Makes Rust of a `.proto` file, without `protoc`: `cairn-proto ROOT FILE OUT_DIR [absent]`.
//!
//! With `absent`, a service need not have all methods: those that it has not are unimplemented.

use std::env;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (root, file, out, absent) = match arguments.as_slice() {
        [root, file, out] => (root, file, out, false),
        [root, file, out, absent] if absent == "absent" => (root, file, out, true),
        _ => return Err("usage: cairn-proto ROOT FILE OUT_DIR [absent]".into()),
    };
    let files = protox::compile([file], [root])?;
    let builder = tonic_prost_build::configure().build_transport(false);
    builder.generate_default_stubs(absent).out_dir(out).compile_fds(files)?;
    Ok(())
}
