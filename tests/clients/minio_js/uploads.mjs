// minio's SDK for JavaScript reads XML with a parser that makes numbers of what looks like one.
import * as Minio from "minio";
import { Readable } from "node:stream";

const url = new URL(process.env.CAIRN_S3);
const client = new Minio.Client({
  endPoint: url.hostname,
  port: Number(url.port),
  useSSL: false,
  accessKey: process.env.CAIRN_KEY,
  secretKey: process.env.CAIRN_SECRET,
  region: "us-east-1",
  partSize: 5 << 20,
});
const bucket = "minio-js";
await client.makeBucket(bucket, "us-east-1");
let failed = 0;
function check(what, ok, detail = "") {
  console.log(ok ? "ok  " : "FAIL", what, ok ? "" : detail);
  failed += !ok;
}

let numbers = 0;
for (let at = 0; at < 60; at++) {
  const id = await client.initiateNewMultipartUpload(bucket, `k${at}`, {});
  numbers += typeof id !== "string" || !id.startsWith("u");
}
check("upload ids are strings", numbers === 0, `${numbers} of 60 are not`);
const bytes = Buffer.alloc((5 << 20) + 77, 7);
for (let at = 0; at < 2; at++) {
  try {
    await client.putObject(bucket, `big${at}`, Readable.from([bytes]));
    const got = [];
    for await (const piece of await client.getObject(bucket, `big${at}`)) got.push(piece);
    check(`streamed upload ${at}`, Buffer.concat(got).equals(bytes));
  } catch (error) {
    check(`streamed upload ${at}`, false, error);
  }
}
for (let at = 0; at < 2; at++) await client.removeObject(bucket, `big${at}`);
await client.removeBucket(bucket);
console.log(failed ? "FAIL" : "PASS");
process.exit(failed ? 1 : 0);
