import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));

/** The compiler is downloaded on demand: it takes 100 MB, and few people change the kernels. */
const COMPILER = "assemblyscript@0.28.20";

interface KernelModule {
  readonly source: string;
  /** Where the compiled module is kept; the file is committed. */
  readonly generated: string;
  readonly constant: string;
  readonly flags: readonly string[];
}

const SHARED_MEMORY = ["--importMemory", "--sharedMemory", "--maximumMemory", "65536"];
const INITIAL_PAGES = "--initialMemory";

export const KERNEL_MODULES: readonly KernelModule[] = [
  {
    source: "libs/kernels/assembly/kernels.ts",
    generated: "libs/kernels/src/generated/kernels-module.ts",
    constant: "KERNELS_MODULE",
    flags: [...SHARED_MEMORY, INITIAL_PAGES, "1", "--enable", "threads"],
  },
  {
    source: "libs/kernels/assembly/tree-hash.ts",
    generated: "libs/kernels/src/generated/tree-hash-module.ts",
    constant: "TREE_HASH_MODULE",
    flags: [INITIAL_PAGES, "6"],
  },
];

/** The line of the generated file with the hash of its source. */
export function sourceLine({ source }: KernelModule): string {
  const hash = createHash("sha256").update(readFileSync(root + source));
  return `// Source: SHA-256 ${hash.digest("hex")}`;
}

/** Compiles a module and writes its bytes as a TypeScript file. */
function writeModule(module: KernelModule): void {
  const folder = mkdtempSync(join(tmpdir(), "heddle-kernels-"));
  try {
    const output = join(folder, "kernels.wasm");
    compile(module, output);
    const text = readFileSync(output).toString("base64");
    mkdirSync(dirname(root + module.generated), { recursive: true });
    writeFileSync(
      root + module.generated,
      `// Compiled from ${module.source} by \`npm run kernels\`.\n${sourceLine(module)}\n` +
        `export const ${module.constant} =\n  "${text}";\n`,
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function compile({ source, flags }: KernelModule, output: string): void {
  // The runtime of that name has no collector: the kernels make no objects.
  const options = ["-O3", "--noAssert", "--runtime", "stub", "--enable", "simd"];
  const asc = ["asc", source, ...options, ...flags, "-o", output];
  const args = ["exec", "--yes", `--package=${COMPILER}`, "--", ...asc];
  const run = spawnSync("npm", args, { cwd: root, encoding: "utf8" });
  if (run.status !== 0) throw new Error(`the kernels do not compile: ${run.stderr}${run.stdout}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) KERNEL_MODULES.forEach(writeModule);
