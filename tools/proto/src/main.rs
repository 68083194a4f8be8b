//! Makes Rust of a `.proto` file, without `protoc`: `cairn-proto ROOT FILE OUT_DIR`.

use std::env;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [root, file, out] = arguments.as_slice() else {
        return Err("usage: cairn-proto ROOT FILE OUT_DIR".into());
    };
    let files = protox::compile([file], [root])?;
    tonic_prost_build::configure().build_transport(false).out_dir(out).compile_fds(files)?;
    Ok(())
}
