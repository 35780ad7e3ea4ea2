import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** A secret that must be nowhere but where it is given. */
export interface Canary {
  /** What it is, as in reports. */
  readonly name: string;
  /** Bytes where programs have it in memory. */
  readonly secret: string | Buffer;
  /** The places where it may be, by their names. */
  readonly allowed?: RegExp;
}

/** A text or file of a run. */
export interface Place {
  /** In the form `file PATH`, `output NAME` or `reply METHOD PATH`. */
  readonly name: string;
  readonly bytes: Buffer;
}

/** Every file below a folder. */
export function filesBelow(folder: string): Place[] {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  return entries.flatMap((entry) => {
    const path = join(entry.parentPath, entry.name);
    return entry.isFile() ? [{ name: `file ${path}`, bytes: readFileSync(path) }] : [];
  });
}

/** Shorter ones would be found by chance. */
const MIN_CHARS = 12;

/** A form in which a secret may be written, and a text that shows it. */
interface Form {
  readonly canary: Canary;
  readonly form: string;
  readonly pattern: Buffer;
}

/** Finds secrets in the bytes of a run, in every form in which programs write them. */
export class CanarySearch {
  readonly #forms: readonly Form[];

  constructor(canaries: readonly Canary[]) {
    this.#forms = canaries.flatMap((canary) =>
      Object.entries(formsOf(canary.secret)).map(([form, text]) => {
        return { canary, form, pattern: Buffer.from(text, "latin1") };
      }),
    );
  }

  /** In the form `SECRET (FORM) in PLACE`, sorted. */
  leaks(places: Iterable<Place>): string[] {
    const found = new Set<string>();
    for (const { name, bytes } of places) {
      for (const { canary, form, pattern } of this.#forms) {
        if (canary.allowed?.test(name) || !bytes.includes(pattern)) continue;
        found.add(`${canary.name} (${form}) in ${name}`);
      }
    }
    return [...found].sort();
  }
}

/** The same secret as programs write it, by the name of the form; equal ones once. */
export function formsOf(secret: string | Buffer): Readonly<Record<string, string>> {
  if (secret.length < MIN_CHARS) throw new Error(`a canary has ${MIN_CHARS} characters or more`);
  const bytes = Buffer.from(secret as string);
  const hex = bytes.toString("hex");
  const forms: Record<string, string> = {
    plain: bytes.toString("latin1"),
    hex,
    "upper-case hex": hex.toUpperCase(),
    ...(typeof secret === "string" && textForms(secret)),
  };
  for (const shift of [0, 1, 2]) {
    const text = base64At(bytes, shift);
    forms[`base64 at ${shift}`] = text;
    forms[`base64url at ${shift}`] = text.replaceAll("+", "-").replaceAll("/", "_");
  }
  const seen = new Set<string>();
  return Object.fromEntries(
    Object.entries(forms).filter(([, text]) => !seen.has(text) && seen.add(text)),
  );
}

function textForms(secret: string): Record<string, string> {
  return {
    "URL-encoded": encodeURIComponent(secret),
    "form-encoded": new URLSearchParams({ x: secret }).toString().slice(2),
    "JSON-escaped": Buffer.from(JSON.stringify(secret).slice(1, -1)).toString("latin1"),
    "UTF-16": Buffer.from(secret, "utf16le").toString("latin1"),
  };
}

/** What is of the bytes alone in the base64 of a text that has them after `shift` others. */
function base64At(bytes: Buffer, shift: number): string {
  const text = Buffer.concat([Buffer.alloc(shift), bytes]).toString("base64");
  const ends = Math.floor(((shift + bytes.length) * 8) / 6);
  return text.slice(Math.ceil((shift * 8) / 6), ends);
}
