import { writeFileSync } from "node:fs";

/** Writes a program that reads its input, trimmed, as `given`. */
export function writeTestProgram(path: string, body: string): string {
  const given = 'const given = require("node:fs").readFileSync(0, "utf8").trim();';
  writeFileSync(path, `#!${process.execPath}\n${given}\n${body}\n`, { mode: 0o755 });
  return path;
}

/**
 * Writes a program that wraps (`wrap`) and unwraps (`unwrap`) keys, as a key management service does.
 * Its own key is the content of the file `<path>.own`.
 */
export function writeKeyProgram(path: string, own: string): string {
  writeFileSync(`${path}.own`, own);
  return writeTestProgram(
    path,
    `const { createCipheriv, createDecipheriv, createHash } = require("node:crypto");
    const own = require("node:fs").readFileSync(__filename + ".own");
    const of = ["aes-256-gcm", createHash("sha256").update(own).digest(), Buffer.alloc(12)];
    if (process.argv[2] === "wrap") {
      const cipher = createCipheriv(...of);
      const sealed = [cipher.update(given), cipher.final(), cipher.getAuthTag()];
      console.log(Buffer.concat(sealed).toString("base64"));
    } else if (process.argv[2] === "unwrap") {
      const sealed = Buffer.from(given, "base64");
      const decipher = createDecipheriv(...of).setAuthTag(sealed.subarray(-16));
      console.log(decipher.update(sealed.subarray(0, -16)) + decipher.final());
    } else process.exitCode = 2;`,
  );
}
