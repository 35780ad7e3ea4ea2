import { dirname, resolve } from "node:path";
import { AppError } from "@heddle/base/errors";
import { readFlagFile } from "@heddle/base/flag-file";
import { isMap, isScalar, LineCounter, parseDocument } from "yaml";
import type { SettingsFile } from "./read-settings.ts";

/** Maximum characters of a configuration file. */
const MAX_CHARACTERS = 1_048_576;

/** Reads a configuration file, YAML or JSON. Throws `invalid_value` with the line of a syntax error. */
export function readSettingsFile(flag: string, path: string): SettingsFile {
  const text = readFlagFile(flag, path, "a YAML or JSON file of settings");
  const lines = new LineCounter();
  const refuse = (line: number, why: string): never => {
    throw new AppError("invalid_value", `${path}:${line}: ${why}`);
  };
  if (text.length > MAX_CHARACTERS) refuse(1, `it has more than ${MAX_CHARACTERS} characters.`);
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const [fault] = document.errors;
  if (fault) refuse(lines.linePos(fault.pos[0]).line, `${fault.message.replace(/\.$/, "")}.`);
  const { contents } = document;
  if (contents === null) return { path, folder: dirname(resolve(path)), values: {}, lines: {} };
  if (!isMap(contents)) return refuse(1, "expected settings, such as `http_port: 8080`.");
  const at = contents.items.map(({ key }): [string, number] => {
    const offset = isScalar(key) ? (key.range?.[0] ?? 0) : 0;
    return [String(isScalar(key) ? key.value : key), lines.linePos(offset).line];
  });
  return {
    path,
    folder: dirname(resolve(path)),
    values: document.toJS({ maxAliasCount: 100 }) as Record<string, unknown>,
    lines: Object.fromEntries(at),
  };
}
