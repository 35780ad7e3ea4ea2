import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const source = "libs/kernels/assembly/kernels.ts";

/** The compiler is downloaded on demand: it takes 100 MB, and few people change the kernels. */
const COMPILER = "assemblyscript@0.28.20";

/** Where the compiled kernels are kept; the file is committed. */
export const generatedKernelsFile = `${root}libs/kernels/src/generated/kernels-module.ts`;

/** The line of the generated file with the hash of its source. */
export function sourceLine(): string {
  const hash = createHash("sha256").update(readFileSync(root + source));
  return `// Source: SHA-256 ${hash.digest("hex")}`;
}

/** Compiles the kernels and writes the module's bytes as a TypeScript file. */
function writeKernels(): void {
  const folder = mkdtempSync(join(tmpdir(), "heddle-kernels-"));
  try {
    const module = join(folder, "kernels.wasm");
    compile(module);
    const text = readFileSync(module).toString("base64");
    mkdirSync(dirname(generatedKernelsFile), { recursive: true });
    writeFileSync(
      generatedKernelsFile,
      `// Compiled from ${source} by \`npm run kernels\`.\n${sourceLine()}\n` +
        `export const KERNELS_MODULE =\n  "${text}";\n`,
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function compile(output: string): void {
  // The runtime of that name has no collector: the kernels make no objects.
  const options = ["-O3", "--noAssert", "--runtime", "stub", "--importMemory", "--sharedMemory"];
  const memory = ["--initialMemory", "1", "--maximumMemory", "65536"];
  const features = ["--enable", "simd", "--enable", "threads"];
  const asc = ["asc", source, ...options, ...memory, ...features, "-o", output];
  const args = ["exec", "--yes", `--package=${COMPILER}`, "--", ...asc];
  const run = spawnSync("npm", args, { cwd: root, encoding: "utf8" });
  if (run.status !== 0) throw new Error(`the kernels do not compile: ${run.stderr}${run.stdout}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeKernels();
