import { createHash } from "node:crypto";
import { existsSync, globSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { extname, join } from "node:path";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { AppError } from "@heddle/base/errors";

/** A file of the console with its headers, and as it is sent to clients that read gzip. */
interface SiteFile {
  readonly headers: Readonly<Record<string, string>>;
  readonly bytes: Buffer;
  readonly zipped: Buffer;
}

const compress = promisify(gzip);
const PAGE = "index.html";
const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};
/** Files of the console alone, calls of this master alone, and no frame around it. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join("; ");
const SECURITY: Readonly<Record<string, string>> = {
  "content-security-policy": CONTENT_SECURITY_POLICY,
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
};
/** The names of these files change with their contents. */
const ASSETS = "assets/";
const YEAR_SECONDS = 31_536_000;

/** The built console: each file is read at its first request and kept. */
export class ConsoleSite {
  readonly #folder: string;
  readonly #files = new Map<string, Promise<SiteFile>>();
  /** Paths of the files, from the folder; only these are ever read. */
  readonly #names: ReadonlySet<string>;

  constructor(folder: string) {
    this.#folder = folder;
    const found = existsSync(folder) ? globSync("**/*", { cwd: folder }) : [];
    const paths = found.map((path) => path.replaceAll("\\", "/"));
    this.#names = new Set(paths.filter((path) => extname(path) in TYPES));
  }

  /** The file of a path below /console; every path of a page is the one page. */
  async file(path: string): Promise<SiteFile> {
    if (this.#names.has(path)) return this.#read(path);
    if (path.startsWith(ASSETS) || extname(path) in TYPES) {
      const message = `The console has no file ${JSON.stringify(path.slice(0, 200))}. Reload the page: this master may be of another version.`;
      throw new AppError("not_found", message);
    }
    if (!this.#names.has(PAGE)) {
      const message = "The console is not built. Build it: npm run build";
      throw new AppError("unavailable", message);
    }
    return this.#read(PAGE);
  }

  #read(path: string): Promise<SiteFile> {
    const known = this.#files.get(path);
    if (known) return known;
    const reading = readSiteFile(join(this.#folder, path), path);
    this.#files.set(path, reading);
    reading.catch(() => this.#files.delete(path));
    return reading;
  }
}

async function readSiteFile(file: string, path: string): Promise<SiteFile> {
  const bytes = await readFile(file);
  const isNamedByContent = path.startsWith(ASSETS);
  const headers = {
    ...SECURITY,
    "content-type": TYPES[extname(path)] ?? "application/octet-stream",
    "cache-control": isNamedByContent ? `public, max-age=${YEAR_SECONDS}, immutable` : "no-cache",
    etag: `"${createHash("sha256").update(bytes).digest("base64url").slice(0, 27)}"`,
    vary: "accept-encoding",
  };
  return { headers, bytes, zipped: await compress(bytes, { level: 9 }) };
}
