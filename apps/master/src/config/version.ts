import { readFileSync } from "node:fs";

/** The version of the running platform, from this package's manifest. */
export const VERSION: string = readVersion();

function readVersion(): string {
  const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  return String((JSON.parse(text) as { version?: unknown }).version);
}
