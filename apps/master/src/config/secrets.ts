import { randomBytes } from "node:crypto";
import { mkdir, open, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { createApiKey, hashApiKey, parseApiKey } from "@heddle/auth/api-key";
import { AppError } from "@heddle/base/errors";
import { propose } from "../control/propose.ts";
import type { ControlPlane } from "../ports.ts";

/** The secret that keys are hashed with; made on the first start. */
export async function readPepper(dataDirectory: string): Promise<Uint8Array> {
  const path = join(dataDirectory, "pepper");
  const text = await readOrCreate(path, () => randomBytes(32).toString("hex"));
  if (/^[0-9a-f]{64}$/.test(text)) return Buffer.from(text, "hex");
  throw new AppError("invalid_value", `${path} must hold 64 hexadecimal digits. Restore it.`);
}

/** The token that nodes attach with; made where the file is missing. */
export async function readClusterToken(path: string): Promise<string> {
  const token = await readOrCreate(path, () => randomBytes(32).toString("base64url"));
  if (token.length >= 16 && /^[\x21-\x7e]+$/.test(token)) return token;
  const message = `${path} must hold a token of at least 16 printable characters without spaces.`;
  throw new AppError("invalid_value", message);
}

/**
 * Registers the first admin key on a cluster that has none: the one in the file, which is made
 * where it is missing, or without a file a new one. Returns the text of a key that was made here
 * and is in no file, to be shown once.
 */
export async function bootstrapAdminKey(
  control: ControlPlane,
  pepper: Uint8Array,
  file: string | undefined,
): Promise<string | undefined> {
  if (control.state.keys.size > 0) return undefined;
  const create = (): string => createApiKey("live").text;
  const text = file === undefined ? create() : await readOrCreate(file, create);
  const parsed = parseApiKey(text);
  if (!parsed.ok) {
    const why = parsed.reason === "checksum" ? "its checksum does not match" : "its form is wrong";
    throw new AppError("invalid_value", `${file} holds no API key: ${why}. Remove it to make one.`);
  }
  const now = Date.now();
  await propose(control, {
    type: "key.create",
    atMs: now,
    key: {
      id: parsed.id,
      name: "bootstrap administrator",
      hash: hashApiKey(text, pepper),
      scopes: ["*"],
      models: [],
      limits: {},
      createdAtMs: now,
    },
  });
  return file === undefined ? text : undefined;
}

/** The trimmed text of a file that only its owner may read. */
async function readOrCreate(path: string, create: () => string): Promise<string> {
  const known = await readIfThere(path);
  if (known !== undefined) return known;
  const text = create();
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const file = await open(path, "wx", 0o600);
  try {
    await file.writeFile(`${text}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  return text;
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return (await readFile(path, "utf8")).trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
