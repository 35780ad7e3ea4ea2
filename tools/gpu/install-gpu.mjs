import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

// `npm run install:gpu [-- --cuda 12]`: the CUDA libraries of the engine (llama.cpp, from npm) and of
// the trainer (ONNX Runtime, from nuget.org), beside what is installed. The driver, and CUDA's
// libcudart and libcublas, come with the machine.

const root = fileURLToPath(new URL("../..", import.meta.url));
const flag = process.argv.indexOf("--cuda");
const cuda = flag < 0 ? "13" : process.argv[flag + 1];

if (process.platform !== "linux" || process.arch !== "x64") {
  fail(`the CUDA packages are for linux-x64, and this is ${process.platform}-${process.arch}`);
}
if (cuda !== "12" && cuda !== "13") fail(`--cuda is 12 or 13, not ${cuda}`);

const engines = JSON.parse(readFileSync(join(root, "libs/engines/package.json"), "utf8"));
const version = engines.optionalDependencies["@node-llama-cpp/linux-x64"];
const name = `@node-llama-cpp/linux-x64-cuda${cuda === "12" ? "-ext" : ""}`;
run("npm", ["install", "--no-save", "--no-audit", "--no-fund", `${name}@${version}`]);

const require = createRequire(join(root, "libs/backends/package.json"));
const onnx = dirname(require.resolve("onnxruntime-node/package.json"));
run(process.execPath, [join(onnx, "script/install.js"), "--onnxruntime-node-install=cuda12"]);
process.stdout.write("heddle: the CUDA packages are installed; `npm run check:gpu` tries them\n");

function run(program, args) {
  process.stdout.write(`heddle: ${program} ${args.join(" ")}\n`);
  const { status, error } = spawnSync(program, args, { cwd: root, stdio: "inherit" });
  if (status !== 0) fail(`${program} failed: ${error?.message ?? `exit code ${status}`}`);
}

function fail(message) {
  process.stderr.write(`heddle: install:gpu: ${message}\n`);
  process.exit(1);
}
