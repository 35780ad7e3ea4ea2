import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { arch, platform } from "node:os";
import { dirname, join } from "node:path";
import { AppError } from "@heddle/base/errors";

/** The shared libraries of one build of llama.cpp; all paths are absolute. */
export interface NativeLibrary {
  /** The npm package they come from, as `@node-llama-cpp/linux-x64`. */
  readonly packageName: string;
  /** Holds the compute backends that are chosen when the program runs. */
  readonly directory: string;
  readonly ggmlPath: string;
  readonly llamaPath: string;
}

/** The npm release of the libraries; the layouts in bindings.ts belong to it. */
export const LIBRARY_RELEASE = "3.22.1";

const CPU_PACKAGES: Record<string, string> = {
  "linux-x64": "linux-x64",
  "linux-arm64": "linux-arm64",
  "darwin-arm64": "mac-arm64-metal",
  "darwin-x64": "mac-x64",
  "win32-x64": "win-x64",
  "win32-arm64": "win-arm64",
};

const GPU_SUFFIXES = ["-cuda", "-cuda-ext", "-vulkan"];

/**
 * Finds the installed libraries for a device: the platform's CPU package for `cpu`, else the first
 * installed GPU package. Throws `unavailable` with the package to install where there is none.
 */
export function findNativeLibrary(device: string): NativeLibrary {
  const names = packageNames(device);
  for (const name of names) {
    const root = resolvePackage(name);
    if (root !== undefined) return librariesIn(name, root);
  }
  throw new AppError(
    "unavailable",
    `no llama.cpp library for ${platform()}-${arch()} and device ${device} is installed; ` +
      `install one of them: ${names.map((name) => `npm install ${name}@${LIBRARY_RELEASE}`).join(", ")}`,
  );
}

function packageNames(device: string): string[] {
  const cpu = CPU_PACKAGES[`${platform()}-${arch()}`];
  if (cpu === undefined) {
    throw new AppError(
      "unavailable",
      `llama.cpp has no prebuilt library for ${platform()}-${arch()}; run this engine on one of ` +
        Object.keys(CPU_PACKAGES).join(", "),
    );
  }
  if (device === "cpu" || cpu.endsWith("-metal")) return [`@node-llama-cpp/${cpu}`];
  return GPU_SUFFIXES.map((suffix) => `@node-llama-cpp/${cpu}${suffix}`);
}

function resolvePackage(name: string): string | undefined {
  try {
    return dirname(dirname(createRequire(import.meta.url).resolve(name)));
  } catch {
    return undefined;
  }
}

function librariesIn(packageName: string, root: string): NativeLibrary {
  const directory = join(root, "bins", packageName.slice(packageName.indexOf("/") + 1));
  const files = readdirSync(directory);
  const ggml = files.find((file) => /^(lib)?ggml(\.v?[\d.]+)?\.(so|dylib|dll)$/.test(file));
  const llama = files.find((file) => /^(lib)?llama(\.v?[\d.]+)?\.(so|dylib|dll)$/.test(file));
  if (ggml === undefined || llama === undefined) {
    throw new AppError(
      "unavailable",
      `${packageName} in ${directory} has no ggml or llama library; reinstall it at ${LIBRARY_RELEASE}`,
    );
  }
  return {
    packageName,
    directory,
    ggmlPath: join(directory, ggml),
    llamaPath: join(directory, llama),
  };
}
