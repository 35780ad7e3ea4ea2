import { randomBytes, X509Certificate } from "node:crypto";
import { link, mkdir, open, readFile, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { AppError } from "@heddle/base/errors";
import { readFlagFileIfThere } from "@heddle/base/flag-file";
import { NO_SECRET_KEYS, type SecretKeys } from "@heddle/base/secret-keys";
import {
  type CertificateAuthority,
  CLOCK_SKEW_MS,
  createAuthority,
} from "./certificate-authority.ts";
import { type TlsMaterial, validityOf } from "./tls-identity.ts";

/** A certificate with less than this share of its lifetime left is not reused. */
const LEAST_SHARE = 0.1;
/** Errors of replacing a read-only file. */
const READ_ONLY: ReadonlySet<string> = new Set(["EROFS", "EACCES", "EPERM", "EBUSY"]);
const KEY = /-----BEGIN PRIVATE KEY-----[\s\S]+?-----END PRIVATE KEY-----\n?/;
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----\n?/;

/**
 * A node's certificate and key from its last start; undefined if they are missing or unusable, or
 * not encrypted with the first of the keys.
 */
export async function readMaterial(
  dataDirectory: string,
  keys = NO_SECRET_KEYS,
): Promise<TlsMaterial | undefined> {
  const text = await readIfThere(materialPath(dataDirectory));
  if (text === undefined || !keys.isCurrent(text)) return undefined;
  const opened = keys.openText(text, "node certificate");
  const { authority, certificate, privateKey } = JSON.parse(opened) as TlsMaterial;
  const { fromMs, untilMs } = validityOf(certificate);
  const lifeMs = untilMs - fromMs - CLOCK_SKEW_MS;
  if (untilMs - Date.now() < lifeMs * LEAST_SHARE) return undefined;
  return { authority, certificate, privateKey };
}

/** Stores them for the next start, readable by the owner only. */
export async function writeMaterial(
  dataDirectory: string,
  material: TlsMaterial,
  keys = NO_SECRET_KEYS,
): Promise<void> {
  const path = materialPath(dataDirectory);
  await replaceDurably(path, keys.sealText(JSON.stringify(material), "node certificate"));
}

/** The authority in a PEM file with key and certificate; undefined if there is no file. */
export async function readAuthority(
  path: string,
  keys: SecretKeys,
): Promise<CertificateAuthority | undefined> {
  const wanted = "a PEM file with the authority's key and certificate";
  const text = readFlagFileIfThere("--ca-file", path, wanted);
  return text === undefined ? undefined : openAuthority(text, path, keys);
}

/**
 * Encrypts the file with the first of the keys, if needed; resolves with whether it is encrypted.
 */
export async function encryptAuthority(path: string, keys: SecretKeys): Promise<boolean> {
  const text = await readFile(path, "utf8");
  if (keys.isCurrent(text)) return true;
  const sealed = keys.sealText(formatAuthority(openAuthority(text, path, keys)), "authority");
  return replaceDurably(path, sealed).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      if (!READ_ONLY.has(error.code ?? "")) throw error;
      return false;
    },
  );
}

/** The authority in the file, created if it is missing; of concurrent processes one creates it. */
export async function ensureAuthority(
  path: string,
  keys = NO_SECRET_KEYS,
): Promise<CertificateAuthority> {
  const known = await readAuthority(path, keys);
  return known ?? keepAuthority(path, await createAuthority(), keys);
}

/** Creates the file unless it exists; resolves with its content. */
export async function keepAuthority(
  path: string,
  authority: CertificateAuthority,
  keys: SecretKeys,
): Promise<CertificateAuthority> {
  const draft = `${path}.${process.pid}-${randomBytes(4).toString("hex")}`;
  await writeDurably(draft, keys.sealText(formatAuthority(authority), "authority"));
  await link(draft, path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EEXIST") throw error;
  });
  await rm(draft);
  return openAuthority(await readFile(path, "utf8"), path, keys);
}

function openAuthority(text: string, path: string, keys: SecretKeys): CertificateAuthority {
  return parseAuthority(keys.openText(text, "authority"), path);
}

export function formatAuthority({ privateKey, certificate }: CertificateAuthority): string {
  return `${privateKey.trim()}\n${certificate.trim()}\n`;
}

/** Throws `invalid_value`, naming the source, if key or certificate is missing. */
export function parseAuthority(text: string, where: string): CertificateAuthority {
  const privateKey = KEY.exec(text)?.[0];
  const certificate = CERTIFICATE.exec(text)?.[0];
  if (privateKey && certificate && new X509Certificate(certificate).ca) {
    return { privateKey, certificate };
  }
  const message = `${where} must hold the private key and the certificate of the cluster's authority as PEM`;
  throw new AppError("invalid_value", message);
}

function materialPath(dataDirectory: string): string {
  return join(dataDirectory, "node-certificate.json");
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** Each writer has its own temporary file: masters of one machine may share the file. */
async function replaceDurably(path: string, text: string): Promise<void> {
  const draft = `${path}.${process.pid}.tmp`;
  await writeDurably(draft, text);
  await rename(draft, path);
}

async function writeDurably(path: string, text: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const file = await open(path, "w", 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}
