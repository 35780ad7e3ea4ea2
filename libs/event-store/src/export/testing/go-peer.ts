import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

// The peer is golang.org/x/mod/sumdb, whose sources every Go distribution has for its own commands.

const PEER = fileURLToPath(new URL("../../../testdata/go-peer", import.meta.url));

/** Builds it as `peer` in the directory. Returns why there is none. */
export function buildGoPeer(directory: string): string | undefined {
  const go = spawnSync("go", ["env", "GOROOT", "GOVERSION"], { encoding: "utf8" });
  if (go.status !== 0) return "go is not installed";
  const [root = "", version = ""] = go.stdout.trim().split("\n");
  const build = join(directory, "build");
  const sumdb = join(root, "src/cmd/vendor/golang.org/x/mod/sumdb");
  const language = `go ${/\d+\.\d+/.exec(version)?.[0]}\n`;
  try {
    for (const name of ["note", "tlog"]) {
      cpSync(join(sumdb, name), join(build, "mod/sumdb", name), { recursive: true });
    }
    cpSync(PEER, build, { recursive: true });
    const require = "require golang.org/x/mod v0.0.0\nreplace golang.org/x/mod => ./mod\n";
    writeFileSync(join(build, "go.mod"), `module peer\n${language}${require}`);
    writeFileSync(join(build, "mod/go.mod"), `module golang.org/x/mod\n${language}`);
    const env = { ...process.env, GOFLAGS: "-mod=mod", GOPROXY: "off", GOTOOLCHAIN: "local" };
    execFileSync("go", ["build", "-o", "../peer", "."], { cwd: build, env, stdio: "pipe" });
    return undefined;
  } catch (error) {
    return `its peer cannot be built: ${String(error).slice(0, 300)}`;
  }
}

/** What the peer is to check; `input.json` of its directory. */
export interface GoPeerInput {
  readonly VerifierKey: string;
  /** Where the log is served; the files of the directory if absent. */
  readonly URL?: string;
  /** For the server. */
  readonly Token?: string;
  /** The key in Go's own form; for a note that the peer signs. */
  readonly SignerKey?: string;
  readonly Indexes: readonly number[];
  /** Our proofs in base64, by the place of the index. */
  readonly Inclusion: readonly (readonly string[])[];
  readonly OldSizes: readonly number[];
  readonly OldRoots: readonly string[];
  readonly Consistency: readonly (readonly string[])[];
}

/** What it found: the size of the log, and its own proofs. */
export interface GoPeerOutput {
  readonly Origin: string;
  readonly Size: number;
  readonly Entries: number;
  readonly Inclusion: readonly (readonly string[])[];
  readonly Consistency: readonly (readonly string[])[];
  readonly SignerNote: string;
}

/** Throws with the peer's words where it does not accept the log. */
export function runGoPeer(directory: string, input: GoPeerInput): GoPeerOutput {
  writeFileSync(join(directory, "input.json"), JSON.stringify(input));
  const printed = execFileSync(join(directory, "peer"), [directory], { encoding: "utf8" });
  return JSON.parse(printed) as GoPeerOutput;
}
