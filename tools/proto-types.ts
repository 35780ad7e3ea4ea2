import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import protobuf from "protobufjs";

const root = fileURLToPath(new URL("..", import.meta.url));

/** Where the generated message types are kept; they are committed. */
export const generatedTypesFolder = `${root}libs/contracts/src/generated`;

/**
 * Writes the TypeScript types of every message in proto/*.proto into `outputFolder`, and what the
 * processes load in place of the files. The types are those of libs/rpc/src/proto.ts.
 */
export function writeProtoTypes(outputFolder: string): void {
  rmSync(outputFolder, { recursive: true, force: true });
  const protoFolder = `${root}proto`;
  const files = readdirSync(protoFolder).filter((name) => name.endsWith(".proto"));
  const generator = `${root}node_modules/@grpc/proto-loader/build/bin/proto-loader-gen-types.js`;
  const options = ["--longs=Number", "--enums=String", "--defaults", "--oneofs"];
  const run = spawnSync(
    process.execPath,
    [
      generator,
      ...options,
      "--targetFileExtension=.ts",
      "--importFileExtension=.ts",
      `--includeDirs=${protoFolder}`,
      `--outDir=${outputFolder}`,
      ...files,
    ],
    { encoding: "utf8" },
  );
  if (run.status !== 0) throw new Error(`the generator of types failed: ${run.stderr}`);
  nameSourcesRelatively(outputFolder);
  const messages = new protobuf.Root();
  messages.resolvePath = (_, name) => join(protoFolder, name);
  const descriptors = JSON.stringify(messages.loadSync(files).toJSON(), null, 1);
  const code = `/** All of proto/ as JSON of protobufjs. */\nexport const DESCRIPTORS = \`${descriptors}\`;\n`;
  writeFileSync(join(outputFolder, "descriptors.ts"), code);
}

/** The generator names its sources by absolute path, which would differ on every machine. */
function nameSourcesRelatively(folder: string): void {
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const text = readFileSync(path, "utf8");
    writeFileSync(path, text.replace(/^(\/\/ Original file: ).*\/(proto\/)/gm, "$1$2"));
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeProtoTypes(generatedTypesFolder);
