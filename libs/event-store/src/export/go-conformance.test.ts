import { execFileSync, spawnSync } from "node:child_process";
import { createHash, generateKeyPairSync } from "node:crypto";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { afterAll, describe, expect, it } from "vitest";
import { EventStore } from "../log/event-store.ts";
import { encodeBase64 } from "../notes/base64.ts";
import { noteSigner, parseVerifierKey } from "../notes/note-key.ts";
import { parseNote, verifyNote } from "../notes/signed-note.ts";
import { tileFiles } from "./tile-files.ts";

// The peer is golang.org/x/mod/sumdb, whose sources every Go distribution has for its own commands.

/** The only origin that Go's tlog package reads. */
const ORIGIN = "go.sum database tree";
const SIZE = 70_001;
const PEER = fileURLToPath(new URL("../../testdata/go-peer", import.meta.url));

const directory = mkdtempSync(join(tmpdir(), "heddle-go-peer-"));
afterAll(() => rmSync(directory, { recursive: true }));

/** Why there is no peer. */
function buildPeer(): string | undefined {
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

describe("against Go's tlog and note packages", () => {
  // holds: events-go
  it("go: checkpoint, tiles, entries and proofs are accepted, and Go's are the same", {
    timeout: 300_000,
  }, async ({ skip }) => {
    const problem = buildPeer();
    if (problem) {
      process.stdout.write(`skipped: the test against Go's tlog package: ${problem}\n`);
      skip(problem);
    }
    const key = generateKeyPairSync("ed25519").privateKey;
    const signer = noteSigner("log.example", key);
    const { log } = await EventStore.open({
      files: nodeStorageFiles,
      directory: join(directory, "log"),
      origin: ORIGIN,
    });
    const entries = Array.from({ length: SIZE }, (_, at) => Buffer.from(`event ${at}`));
    await log.append(entries);
    const checkpoint = await log.sign([signer]);
    const indexes = [0, 1, 255, 256, 65_535, 65_536, 69_999, SIZE - 1];
    const sizes = [1, 2, 255, 256, 257, 65_535, 65_536, 65_537, 70_000, SIZE];
    const inclusion: string[][] = [];
    for (const index of indexes) inclusion.push((await log.prove(index)).hashes.map(encodeBase64));
    const consistency: string[][] = [];
    const roots: string[] = [];
    for (const size of sizes) {
      consistency.push((await log.proveConsistency(size, SIZE)).map(encodeBase64));
      roots.push(encodeBase64(await log.tree(size).root()));
    }
    for await (const { path, bytes } of tileFiles(log, checkpoint)) {
      mkdirSync(dirname(join(directory, path)), { recursive: true });
      writeFileSync(join(directory, path), bytes);
    }
    await log.close();
    const input = {
      VerifierKey: signer.verifierKey,
      SignerKey: goSigner("peer.example", key.export({ format: "jwk" })),
      Indexes: indexes,
      Inclusion: inclusion,
      OldSizes: sizes,
      OldRoots: roots,
      Consistency: consistency,
    };
    writeFileSync(join(directory, "input.json"), JSON.stringify(input));
    const printed = execFileSync(join(directory, "peer"), [directory], { encoding: "utf8" });
    const found = JSON.parse(printed);
    expect(found).toMatchObject({ Size: SIZE, Entries: SIZE });
    expect(found.Inclusion).toEqual(inclusion);
    expect(found.Consistency).toEqual(consistency);
    const peer = parseVerifierKey(noteSigner("peer.example", key).verifierKey);
    expect(verifyNote(parseNote(found.SignerNote), [peer])).toEqual([peer]);
  });
});

/** A private key in the form of Go's note package. */
function goSigner(name: string, { d = "", x = "" }: { d?: string; x?: string }): string {
  const material = Buffer.concat([Buffer.of(1), Buffer.from(x, "base64url")]);
  const digest = createHash("sha256").update(`${name}\n`).update(material).digest();
  const seed = Buffer.concat([Buffer.of(1), Buffer.from(d, "base64url")]);
  return `PRIVATE+KEY+${name}+${digest.subarray(0, 4).toString("hex")}+${encodeBase64(seed)}`;
}
