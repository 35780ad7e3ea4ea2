import { AppError } from "@heddle/base/errors";
import { readFlagFile } from "@heddle/base/flag-file";

/** The address of an S3-compatible store, and the credentials for it. */
export interface S3Settings {
  /** The URL of the bucket, without a trailing slash. */
  readonly url: string;
  /** The prefix of each key; empty, or with a trailing slash. */
  readonly prefix: string;
  readonly region: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
}

const FORM = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:\/[\w.-]+)*)\/?$/;

/** For a flag; the variables are those of the AWS tools. Throws an AppError `invalid_value`. */
export function readS3Settings(text: string, env: NodeJS.ProcessEnv, flag: string): S3Settings {
  const [, bucket, path = ""] = FORM.exec(text) ?? [];
  if (bucket === undefined) {
    throw wrong(`${flag} takes s3://BUCKET/PREFIX, not ${text}`);
  }
  const region = env["AWS_REGION"] || env["AWS_DEFAULT_REGION"] || "us-east-1";
  const given = env["AWS_ENDPOINT_URL_S3"] || env["AWS_ENDPOINT_URL"];
  const endpoint = given || `https://s3.${region}.amazonaws.com`;
  if (!URL.canParse(endpoint) || !/^https?:$/.test(new URL(endpoint).protocol)) {
    throw wrong(`AWS_ENDPOINT_URL_S3 takes an address, as http://127.0.0.1:9000, not ${endpoint}`);
  }
  const file = env["AWS_SHARED_CREDENTIALS_FILE"];
  const stored = file ? credentialsOf(file, env["AWS_PROFILE"] || "default") : {};
  const accessKeyId = env["AWS_ACCESS_KEY_ID"] || stored["aws_access_key_id"];
  const secretAccessKey = env["AWS_SECRET_ACCESS_KEY"] || stored["aws_secret_access_key"];
  if (!accessKeyId || !secretAccessKey) {
    const how = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SHARED_CREDENTIALS_FILE";
    throw wrong(`${flag} ${text} needs a key: ${how}`);
  }
  return {
    url: `${endpoint.replace(/\/+$/, "")}/${bucket}`,
    region,
    accessKeyId,
    secretAccessKey,
    prefix: path === "" ? "" : `${path.slice(1)}/`,
    sessionToken: env["AWS_SESSION_TOKEN"] || stored["aws_session_token"],
  };
}

/** One profile of a file of `[profile]` and `name = value` lines. */
function credentialsOf(file: string, profile: string): Record<string, string> {
  const wanted = "a file with profiles, as ~/.aws/credentials";
  const text = readFlagFile("AWS_SHARED_CREDENTIALS_FILE", file, wanted);
  const values: Record<string, string> = {};
  let section = "";
  for (const line of text.split("\n")) {
    section = /^\s*\[([^\]]+)\]/.exec(line)?.[1]?.trim() ?? section;
    const [, name, value] = /^\s*(\w+)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (section === profile && name !== undefined) values[name] = value ?? "";
  }
  return values;
}

function wrong(message: string): AppError {
  return new AppError("invalid_value", message);
}
