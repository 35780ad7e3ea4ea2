import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  type KeyObject,
  randomBytes,
} from "node:crypto";

/** Browsers keep at least 4,096 bytes of a cookie with its name and attributes. */
const MAX_VALUE_CHARS = 3_600;
const MAX_PARTS = 4;
const IV_BYTES = 12;
const TAG_BYTES = 16;
const CIPHER = "aes-256-gcm";

/** A cookie that only masters of this cluster can make and read; scripts of pages never see it. */
export class SealedCookie<Content> {
  readonly name: string;
  readonly #key: KeyObject;
  readonly #attributes: string;

  /** `isSecure`: the console is reached by HTTPS alone. */
  constructor(
    pepper: KeyObject,
    name: string,
    { isSecure, sameSite }: { readonly isSecure: boolean; readonly sameSite: "Lax" | "Strict" },
  ) {
    // With that prefix no other host and no page without HTTPS can set it.
    this.name = isSecure ? `__Host-${name}` : name;
    this.#key = createSecretKey(createHmac("sha256", pepper).update(`cookie ${name}`).digest());
    const secure = isSecure ? "; Secure" : "";
    this.#attributes = `Path=/; HttpOnly; SameSite=${sameSite}${secure}`;
  }

  /** The headers that set it; undefined if the content is larger than cookies may be. */
  set(content: Content, seconds: number): string[] | undefined {
    const iv = randomBytes(IV_BYTES);
    const cipher = createCipheriv(CIPHER, this.#key, iv);
    const text = Buffer.concat([cipher.update(JSON.stringify(content)), cipher.final()]);
    const sealed = Buffer.concat([iv, cipher.getAuthTag(), text]).toString("base64url");
    const parts = sealed.match(new RegExp(`.{1,${MAX_VALUE_CHARS}}`, "g")) ?? [];
    if (parts.length > MAX_PARTS) return undefined;
    return Array.from({ length: MAX_PARTS }, (_, at) => {
      const value = parts[at];
      return value === undefined
        ? this.#header(at, "", 0)
        : this.#header(at, value, Math.max(0, Math.floor(seconds)));
    });
  }

  clear(): string[] {
    return Array.from({ length: MAX_PARTS }, (_, at) => this.#header(at, "", 0));
  }

  /** The content of a request's header `Cookie`; undefined if it has none that is whole. */
  read(header: string | undefined): Content | undefined {
    if (!header?.includes(this.name)) return undefined;
    const values = new Map<string, string>();
    for (const pair of header.split(";")) {
      const at = pair.indexOf("=");
      const name = pair.slice(0, at).trim();
      if (!name.startsWith(this.name)) continue;
      // Another host of the same site may have set one of them.
      if (values.has(name)) return undefined;
      values.set(name, pair.slice(at + 1).trim());
    }
    let sealed = "";
    for (let at = 0; at < MAX_PARTS; at++) sealed += values.get(this.#nameOf(at)) ?? "";
    return this.#open(Buffer.from(sealed, "base64url"));
  }

  #open(bytes: Buffer): Content | undefined {
    if (bytes.length <= IV_BYTES + TAG_BYTES) return undefined;
    try {
      const decipher = createDecipheriv(CIPHER, this.#key, bytes.subarray(0, IV_BYTES));
      decipher.setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES));
      const text = decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES));
      return JSON.parse(Buffer.concat([text, decipher.final()]).toString()) as Content;
    } catch {
      return undefined;
    }
  }

  #header(at: number, value: string, seconds: number): string {
    return `${this.#nameOf(at)}=${value}; Max-Age=${seconds}; ${this.#attributes}`;
  }

  #nameOf(at: number): string {
    return at === 0 ? this.name : `${this.name}-${at}`;
  }
}
