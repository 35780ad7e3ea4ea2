import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { readS3Settings } from "./s3-settings.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-s3-settings-"));
afterAll(() => rmSync(folder, { recursive: true }));

const KEY = { AWS_ACCESS_KEY_ID: "id", AWS_SECRET_ACCESS_KEY: "secret" };
const read = (text: string, env: NodeJS.ProcessEnv = KEY) => readS3Settings(text, env, "--copies");

it.each([
  ["s3://bucket", ""],
  ["s3://bucket/", ""],
  ["s3://bucket/a", "a/"],
  ["s3://bucket/a/b.c_d-e/", "a/b.c_d-e/"],
])("S3 settings: %s has the prefix %j", (text, prefix) => {
  expect(read(text)).toEqual({
    url: "https://s3.us-east-1.amazonaws.com/bucket",
    prefix,
    region: "us-east-1",
    accessKeyId: "id",
    secretAccessKey: "secret",
    sessionToken: undefined,
  });
});

it.each([
  "bucket",
  "s3:/bucket",
  "s3://b",
  "s3://Bucket",
  "s3://bucket/a//b",
  "s3://bucket/a b",
  "",
])("S3 settings: %j is refused with the form", (text) => {
  const message = `--copies takes s3://BUCKET/PREFIX, not ${text}`;
  expect(() => read(text)).toThrow(expect.objectContaining({ code: "invalid_value", message }));
});

it("S3 settings: the region and address are those of the AWS tools' variables", () => {
  const of = (env: NodeJS.ProcessEnv) => read("s3://bucket", { ...KEY, ...env });
  const both = { AWS_REGION: "eu-west-1", AWS_DEFAULT_REGION: "us-west-2" };
  expect(of(both)).toMatchObject({
    region: "eu-west-1",
    url: "https://s3.eu-west-1.amazonaws.com/bucket",
  });
  expect(of({ ...both, AWS_REGION: "" }).region).toBe("us-west-2");
  const endpoints = { AWS_ENDPOINT_URL_S3: "http://a:9000//", AWS_ENDPOINT_URL: "https://b/c" };
  expect(of(endpoints).url).toBe("http://a:9000/bucket");
  expect(of({ ...endpoints, AWS_ENDPOINT_URL_S3: "" }).url).toBe("https://b/c/bucket");
  for (const bad of ["nowhere", "ftp://a", "xhttp://a"]) {
    expect(() => of({ AWS_ENDPOINT_URL: bad })).toThrow(
      `takes an address, as http://127.0.0.1:9000, not ${bad}`,
    );
  }
});

it("S3 settings: the key is in variables, or in a profile of the credentials' file", () => {
  const file = join(folder, "credentials");
  const text = [
    "aws_access_key_id = of-none",
    "[default]",
    "aws_access_key_id = first",
    "  aws_secret_access_key=one",
    " [ other ] ",
    "aws_access_key_id = second",
    "aws_secret_access_key = two three ",
    "aws_session_token =",
    "# comment",
    "[last]",
    "aws_access_key_id = third",
    "aws_secret_access_key = 3",
    "aws_session_token = session",
  ];
  writeFileSync(file, text.join("\n"));
  const of = (env: NodeJS.ProcessEnv) => {
    const settings = read("s3://bucket", { AWS_SHARED_CREDENTIALS_FILE: file, ...env });
    return [settings.accessKeyId, settings.secretAccessKey, settings.sessionToken];
  };
  expect(of({})).toEqual(["first", "one", undefined]);
  expect(of({ AWS_PROFILE: "other" })).toEqual(["second", "two three", ""]);
  expect(of({ AWS_PROFILE: "last" })).toEqual(["third", "3", "session"]);
  expect(of({ ...KEY, AWS_SESSION_TOKEN: "own" })).toEqual(["id", "secret", "own"]);
  expect(() => of({ AWS_PROFILE: "none" })).toThrow(/s3:\/\/bucket needs a key: set AWS_ACCESS/);
});

it.each(["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])("S3 settings: without %s none", (name) => {
  expect(() => read("s3://bucket", { ...KEY, [name]: "" })).toThrow(/needs a key/);
});
