// minio-go is under many programs. This does with it what they do: uploads of known and unknown size,
// with trailing checksums and without, conditions, copies, listings, uploads left behind.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand"
	"net/url"
	"os"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

var bad int

func check(what string, ok bool, detail ...any) {
	if ok {
		fmt.Println("ok   " + what)
		return
	}
	bad++
	fmt.Println(append([]any{"FAIL " + what + "  ->"}, detail...)...)
}

const part = 5 << 20

func main() {
	at, err := url.Parse(os.Getenv("CAIRN_S3"))
	if err != nil {
		panic(err)
	}
	for _, trailing := range []bool{false, true} {
		options := minio.Options{
			Creds:           credentials.NewStaticV4(os.Getenv("CAIRN_KEY"), os.Getenv("CAIRN_SECRET"), ""),
			TrailingHeaders: trailing,
			Region:          "us-east-1",
		}
		client, err := minio.New(at.Host, &options)
		if err != nil {
			panic(err)
		}
		run(client, fmt.Sprintf("minio-go-%v", trailing), fmt.Sprintf("trailing=%v: ", trailing))
	}
	if bad > 0 {
		fmt.Println("FAIL", bad)
		os.Exit(1)
	}
	fmt.Println("PASS")
}

func run(c *minio.Client, b, t string) {
	ctx := context.Background()
	data := make([]byte, 2*part+77)
	rand.New(rand.NewSource(1)).Read(data)
	check(t+"MakeBucket", c.MakeBucket(ctx, b, minio.MakeBucketOptions{}) == nil)
	check(t+"MakeBucket again", c.MakeBucket(ctx, b, minio.MakeBucketOptions{}) == nil)
	puts(ctx, c, b, t, data)
	refusals(ctx, c, b, t, data)
	copies(ctx, c, b, t, data)
	leftovers(ctx, c, b, t, data)
}

func puts(ctx context.Context, c *minio.Client, b, t string, data []byte) {
	kinds := map[string]minio.PutObjectOptions{
		"plain":    {PartSize: part},
		"md5":      {SendContentMd5: true, PartSize: part},
		"parallel": {ConcurrentStreamParts: true, NumThreads: 3, PartSize: part},
	}
	for name, options := range kinds {
		for _, size := range []int64{int64(len(data)), -1, 1000} {
			bytesOf := data
			if size == 1000 {
				bytesOf = data[:size]
			}
			from := io.MultiReader(bytes.NewReader(bytesOf))
			_, err := c.PutObject(ctx, b, "o/"+name, from, size, options)
			same := false
			if err == nil {
				var got []byte
				got, err = read(ctx, c, b, "o/"+name)
				same = bytes.Equal(got, bytesOf)
			}
			check(fmt.Sprintf("%sput %s, size %d", t, name, size), err == nil && same, err)
		}
	}
}

func read(ctx context.Context, c *minio.Client, b, key string) ([]byte, error) {
	object, err := c.GetObject(ctx, b, key, minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	return io.ReadAll(object)
}

func refusals(ctx context.Context, c *minio.Client, b, t string, data []byte) {
	_, err := c.StatObject(ctx, b, "none", minio.StatObjectOptions{})
	told := minio.ToErrorResponse(err)
	check(t+"Stat of nothing", told.Code == "NoSuchKey" && told.Key == "none", err)
	object, _ := c.GetObject(ctx, b, "none", minio.GetObjectOptions{})
	_, err = object.Stat()
	told = minio.ToErrorResponse(err)
	check(t+"Get of nothing names the key", told.Code == "NoSuchKey" && told.Key == "none", err)
	_, err = c.PutObject(ctx, b, "cold", bytes.NewReader(data), int64(len(data)),
		minio.PutObjectOptions{StorageClass: "GLACIER", DisableMultipart: true})
	check(t+"a refused upload tells why", minio.ToErrorResponse(err).Code == "InvalidStorageClass", err)
	_, err = c.GetBucketLifecycle(ctx, b)
	code := minio.ToErrorResponse(err).Code
	check(t+"no lifecycle", code == "NoSuchLifecycleConfiguration", err)
	policy, err := c.GetBucketPolicy(ctx, b)
	check(t+"no policy", policy == "" && err == nil, err)
}

func copies(ctx context.Context, c *minio.Client, b, t string, data []byte) {
	if _, err := c.PutObject(ctx, b, "source", bytes.NewReader(data), int64(len(data)),
		minio.PutObjectOptions{PartSize: part}); err != nil {
		check(t+"source", false, err)
		return
	}
	_, err := c.ComposeObject(ctx,
		minio.CopyDestOptions{Bucket: b, Object: "composed +ü"},
		minio.CopySrcOptions{Bucket: b, Object: "source", MatchRange: true, Start: 0, End: part},
		minio.CopySrcOptions{Bucket: b, Object: "source"})
	got, _ := read(ctx, c, b, "composed +ü")
	want := append(append([]byte{}, data[:part+1]...), data...)
	check(t+"ComposeObject", err == nil && bytes.Equal(got, want), err)
	_, err = c.CopyObject(ctx,
		minio.CopyDestOptions{Bucket: b, Object: "copy", UserTags: map[string]string{"k": "v w"}, ReplaceTags: true},
		minio.CopySrcOptions{Bucket: b, Object: "composed +ü"})
	check(t+"CopyObject with tags", err == nil, err)
}

func leftovers(ctx context.Context, c *minio.Client, b, t string, data []byte) {
	versions := 0
	for object := range c.ListObjects(ctx, b, minio.ListObjectsOptions{Recursive: true, WithVersions: true}) {
		if object.Err == nil && object.VersionID == "null" {
			versions++
		}
	}
	check(t+"versions", versions == 6, versions)
	errs := 0
	all := c.ListObjects(ctx, b, minio.ListObjectsOptions{Recursive: true, WithVersions: true})
	for range c.RemoveObjects(ctx, b, all, minio.RemoveObjectsOptions{}) {
		errs++
	}
	core := minio.Core{Client: c}
	id, err := core.NewMultipartUpload(ctx, b, "left behind", minio.PutObjectOptions{})
	check(t+"an upload that is left behind", err == nil && id[0] == 'u', id, err)
	check(t+"RemoveBucket", errs == 0 && c.RemoveBucket(ctx, b) == nil, errs)
}
