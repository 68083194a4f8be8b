//! A client that asks for exactly what a test says, and knows as little as it can.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

pub const NFS: u32 = 100_003;
pub const MOUNT: u32 = 100_005;

/// What is sent, in XDR.
#[derive(Clone, Default)]
pub struct Args(pub Vec<u8>);

impl Args {
    pub fn new() -> Args {
        Args::default()
    }

    pub fn number(mut self, number: u32) -> Args {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub fn long(mut self, number: u64) -> Args {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Args {
        self = self.number(bytes.len() as u32);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// What is to be set: a mode, or nothing.
    pub fn mode(self, mode: Option<u32>) -> Args {
        let args = self.number(mode.is_some().into());
        let args = mode.into_iter().fold(args, Args::number);
        (0..5).fold(args, |args, _| args.number(0))
    }

    /// What is to be set: a size.
    pub fn size(self, size: u64) -> Args {
        self.number(0).number(0).number(0).number(1).long(size).number(0).number(0)
    }
}

/// What came, in XDR.
pub struct Res(Vec<u8>);

/// Attributes of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    pub kind: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub fsid: u64,
    pub ino: u64,
    pub times: [(u32, u32); 3],
}

impl Res {
    fn take(&mut self, len: usize) -> Vec<u8> {
        assert!(self.0.len() >= len, "the reply ends too early");
        self.0.drain(..len).collect()
    }

    pub fn number(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    pub fn long(&mut self) -> u64 {
        u64::from_be_bytes(self.take(8).try_into().unwrap())
    }

    pub fn bytes(&mut self) -> Vec<u8> {
        let len = self.number() as usize;
        let mut bytes = self.take(len.next_multiple_of(4));
        assert!(bytes.drain(len..).all(|byte| byte == 0));
        bytes
    }

    pub fn attributes(&mut self) -> Attributes {
        let [kind, mode, nlink, uid, gid] = [(); 5].map(|()| self.number());
        let (size, _used, _device) = (self.long(), self.long(), self.long());
        let (fsid, ino) = (self.long(), self.long());
        let times = [(); 3].map(|()| (self.number(), self.number()));
        Attributes { kind, mode, nlink, uid, gid, size, fsid, ino, times }
    }

    pub fn after(&mut self) -> Option<Attributes> {
        (self.number() == 1).then(|| self.attributes())
    }

    /// Right before a change: the size, and the time of change.
    pub fn before(&mut self) -> Option<(u64, (u32, u32))> {
        (self.number() == 1).then(|| {
            let (size, _mtime) = (self.long(), self.long());
            (size, (self.number(), self.number()))
        })
    }

    /// Before and after a change: of before, whether it is known.
    pub fn around(&mut self) -> (bool, Option<Attributes>) {
        let before = self.before();
        (before.is_some(), self.after())
    }

    pub fn end(&self) {
        assert!(self.0.is_empty(), "{} bytes too many", self.0.len());
    }
}

pub struct Client {
    pub stream: TcpStream,
    xid: u32,
    pub uid: u32,
    pub gid: u32,
}

/// A call as bytes, without its record mark.
pub fn call(
    xid: u32,
    (program, version, procedure): (u32, u32, u32),
    (uid, gid): (u32, u32),
    args: &Args,
) -> Vec<u8> {
    let credentials = Args::new().number(0).bytes(b"test").number(uid).number(gid).number(0);
    let head = Args::new().number(xid).number(0).number(2);
    let head = head.number(program).number(version).number(procedure);
    let mut call = head.number(1).bytes(&credentials.0).number(0).number(0).0;
    call.extend(&args.0);
    call
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).await.unwrap();
        Client { stream, xid: 100, uid: 0, gid: 0 }
    }

    /// From an address of this machine.
    pub async fn connect_from(from: [u8; 4], address: SocketAddr) -> Client {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        let stream = socket.connect(address).await.unwrap();
        Client { stream, xid: 100, uid: 0, gid: 0 }
    }

    pub async fn send(&mut self, call: &[u8]) {
        let mut record = (call.len() as u32 | 1 << 31).to_be_bytes().to_vec();
        record.extend(call);
        self.stream.write_all(&record).await.unwrap();
    }

    /// The next reply: whose it is, and all behind that.
    pub async fn receive(&mut self) -> (u32, Res) {
        let mark = self.stream.read_u32().await.unwrap();
        assert!(mark & 1 << 31 != 0, "one fragment");
        let mut bytes = vec![0; (mark & !(1 << 31)) as usize];
        self.stream.read_exact(&mut bytes).await.unwrap();
        let mut res = Res(bytes);
        (res.number(), res)
    }

    /// Sends the bytes of a call, and returns all of the reply behind its xid.
    pub async fn ask(&mut self, call: &[u8]) -> Res {
        self.send(call).await;
        let (xid, res) = self.receive().await;
        assert_eq!(xid.to_be_bytes(), call[..4]);
        res
    }

    /// Calls what should be there. Returns what follows in the reply.
    pub async fn call(&mut self, program: u32, procedure: u32, args: Args) -> Res {
        self.call_version((program, 3, procedure), args).await
    }

    pub async fn call_version(&mut self, of: (u32, u32, u32), args: Args) -> Res {
        self.xid += 1;
        let call = call(self.xid, of, (self.uid, self.gid), &args);
        let mut res = self.ask(&call).await;
        let head = [(); 5].map(|()| res.number());
        assert_eq!(head, [1, 0, 0, 0, 0], "accepted, and done");
        res
    }

    /// Calls NFS. Returns the status, and what follows.
    pub async fn nfs(&mut self, procedure: u32, args: Args) -> (u32, Res) {
        let mut res = self.call(NFS, procedure, args).await;
        (res.number(), res)
    }

    pub async fn mount(&mut self, path: &str) -> Result<Vec<u8>, u32> {
        let mut res = self.call(MOUNT, 1, Args::new().bytes(path.as_bytes())).await;
        match res.number() {
            0 => {
                let handle = res.bytes();
                assert_eq!((res.number(), res.number()), (1, 1), "AUTH_SYS");
                res.end();
                Ok(handle)
            }
            status => Err(status),
        }
    }

    pub async fn getattr(&mut self, handle: &[u8]) -> Result<Attributes, u32> {
        match self.nfs(1, Args::new().bytes(handle)).await {
            (0, mut res) => Ok(res.attributes()),
            (status, res) => {
                res.end();
                Err(status)
            }
        }
    }

    pub async fn lookup(
        &mut self,
        directory: &[u8],
        name: &str,
    ) -> Result<(Vec<u8>, Attributes), u32> {
        let args = Args::new().bytes(directory).bytes(name.as_bytes());
        let (status, mut res) = self.nfs(3, args).await;
        if status != 0 {
            res.after();
            res.end();
            return Err(status);
        }
        let (handle, found) = (res.bytes(), res.after().unwrap());
        res.after().unwrap();
        res.end();
        Ok((handle, found))
    }

    /// CREATE, MKDIR, SYMLINK or MKNOD, with what comes behind the name.
    pub async fn make(
        &mut self,
        procedure: u32,
        (directory, name): (&[u8], &str),
        rest: Args,
    ) -> Result<(Vec<u8>, Attributes), u32> {
        let mut args = Args::new().bytes(directory).bytes(name.as_bytes());
        args.0.extend(rest.0);
        let (status, mut res) = self.nfs(procedure, args).await;
        let made = (status == 0).then(|| {
            assert_eq!(res.number(), 1);
            (res.bytes(), res.after().unwrap())
        });
        res.around();
        res.end();
        made.ok_or(status)
    }

    /// A file that must not be there, with a mode.
    pub async fn create(&mut self, directory: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        let made = self.make(8, (directory, name), Args::new().number(1).mode(Some(0o644)));
        made.await.map(|(handle, _)| handle)
    }

    pub async fn mkdir(&mut self, directory: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        let made = self.make(9, (directory, name), Args::new().mode(Some(0o755)));
        made.await.map(|(handle, _)| handle)
    }

    /// How it became, and the verifier.
    pub async fn write(
        &mut self,
        handle: &[u8],
        offset: u64,
        data: &[u8],
        stable: u32,
    ) -> Result<(u32, u64), u32> {
        let len = data.len() as u32;
        let args = Args::new().bytes(handle).long(offset).number(len).number(stable).bytes(data);
        let (status, mut res) = self.nfs(7, args).await;
        res.around();
        if status != 0 {
            res.end();
            return Err(status);
        }
        assert_eq!(res.number(), len);
        let written = (res.number(), res.long());
        res.end();
        Ok(written)
    }

    /// Bytes, and whether the file ends there.
    pub async fn read(
        &mut self,
        handle: &[u8],
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), u32> {
        let args = Args::new().bytes(handle).long(offset).number(count);
        let (status, mut res) = self.nfs(6, args).await;
        res.after();
        if status != 0 {
            res.end();
            return Err(status);
        }
        let (len, is_end) = (res.number(), res.number() == 1);
        let data = res.bytes();
        assert_eq!(data.len(), len as usize);
        res.end();
        Ok((data, is_end))
    }

    /// The verifier.
    pub async fn commit(&mut self, handle: &[u8]) -> Result<u64, u32> {
        let (status, mut res) = self.nfs(21, Args::new().bytes(handle).long(0).number(0)).await;
        res.around();
        let verifier = (status == 0).then(|| res.long());
        res.end();
        verifier.ok_or(status)
    }

    pub async fn setattr(
        &mut self,
        handle: &[u8],
        what: Args,
        guard: Option<(u32, u32)>,
    ) -> Result<(), u32> {
        let mut args = Args::new().bytes(handle);
        args.0.extend(what.0);
        let args = match guard {
            Some((secs, nanos)) => args.number(1).number(secs).number(nanos),
            None => args.number(0),
        };
        let (status, mut res) = self.nfs(2, args).await;
        res.around();
        res.end();
        if status == 0 { Ok(()) } else { Err(status) }
    }

    /// REMOVE or RMDIR.
    pub async fn remove(&mut self, procedure: u32, at: &[u8], name: &str) -> Result<(), u32> {
        let args = Args::new().bytes(at).bytes(name.as_bytes());
        let (status, mut res) = self.nfs(procedure, args).await;
        res.around();
        res.end();
        if status == 0 { Ok(()) } else { Err(status) }
    }

    pub async fn rename(&mut self, from: (&[u8], &str), to: (&[u8], &str)) -> Result<(), u32> {
        let args = Args::new().bytes(from.0).bytes(from.1.as_bytes());
        let (status, mut res) = self.nfs(14, args.bytes(to.0).bytes(to.1.as_bytes())).await;
        res.around();
        res.around();
        res.end();
        if status == 0 { Ok(()) } else { Err(status) }
    }

    pub async fn link(&mut self, file: &[u8], to: (&[u8], &str)) -> Result<Attributes, u32> {
        let args = Args::new().bytes(file).bytes(to.0).bytes(to.1.as_bytes());
        let (status, mut res) = self.nfs(15, args).await;
        let file = res.after();
        res.around();
        res.end();
        if status == 0 { Ok(file.unwrap()) } else { Err(status) }
    }

    /// A part of a directory: names with their cookies, and whether these were all.
    pub async fn list(
        &mut self,
        directory: &[u8],
        cookie: u64,
        bytes: u32,
        plus: bool,
    ) -> Result<(Vec<(String, u64)>, bool), u32> {
        let args = Args::new().bytes(directory).long(cookie).long(0).number(bytes);
        let args = if plus { args.number(bytes) } else { args };
        let (status, mut res) = self.nfs(if plus { 17 } else { 16 }, args).await;
        res.after();
        if status != 0 {
            res.end();
            return Err(status);
        }
        assert!(res.0.len() <= bytes as usize);
        res.long();
        let mut names = Vec::new();
        while res.number() == 1 {
            let (_ino, name, cookie) = (res.long(), res.bytes(), res.long());
            if plus {
                res.after();
                if res.number() == 1 {
                    res.bytes();
                }
            }
            names.push((String::from_utf8(name).unwrap(), cookie));
        }
        let is_end = res.number() == 1;
        res.end();
        Ok((names, is_end))
    }
}
