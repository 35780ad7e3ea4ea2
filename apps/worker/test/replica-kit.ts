import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { filesBeneath } from "@heddle/base/beneath";
import { describe, expect, it, onTestFinished } from "vitest";
import type { ArtifactReplica } from "../src/artifacts/replica.ts";

const timeout = 60_000;
const HOUR_MS = 3_600_000;
/** Three parts of an object store, the last of them short. */
const LARGE_BYTES = 20 * 2 ** 20 + 17;

/** An artifact store that the cases of the port are tried on. */
export interface ReplicaUnderTest {
  readonly title: string;
  /** An empty place. */
  place(): ReplicaPlace;
}

interface ReplicaPlace {
  open(maxAgeMs: number): ArtifactReplica;
  /** The files or objects that are stored there, as paths. */
  stored(): readonly string[];
}

/** What every artifact store keeps. */
export function replicaCases({ title, place: newPlace }: ReplicaUnderTest): void {
  const begin = () => new Tried(newPlace());
  describe(title, { timeout }, () => {
    it("a copy of large files and odd names is restored with the same bytes", async () => {
      const at = begin();
      const large = randomBytes(LARGE_BYTES);
      const odd = "a <b> & 'ü' 😀\n%2F.txt";
      const files = { "large.bin": large, [`sub/${odd}`]: Buffer.from("odd"), empty: Buffer.of() };
      await at.copy("job_A/1.0", files);
      const to = await at.restored("job_A/1.0");
      expect(readFileSync(join(to, "large.bin")).equals(large)).toBe(true);
      expect(readFileSync(join(to, "sub", odd), "utf8")).toBe("odd");
      expect(readdirSync(to).sort()).toEqual(["empty", "large.bin", "sub"]);
    });

    it("a file is read in parts, and one that is not there is undefined", async () => {
      const at = begin();
      const content = randomBytes(1_000_000);
      await at.copy("job_A/1.0", { x: content });
      const file = await at.replica.open("job_A/1.0", "x");
      expect(file?.bytes).toBe(content.byteLength);
      const parts: Buffer[] = [];
      for await (const part of file?.read(999, 700_001) ?? []) parts.push(Buffer.from(part));
      await file?.close();
      expect(Buffer.concat(parts).equals(content.subarray(999, 700_001))).toBe(true);
      expect(await at.replica.open("job_A/1.0", "none")).toBeUndefined();
      expect(await at.replica.open("job_B/1.0", "x")).toBeUndefined();
    });

    it("an existing copy stays unless it is to be replaced", async () => {
      const at = begin();
      await at.copy("job_A/1.0", { x: Buffer.from("first") });
      await at.copy("job_A/1.0", { x: Buffer.from("second") });
      expect(readFileSync(join(await at.restored("job_A/1.0"), "x"), "utf8")).toBe("first");
      await at.copy("job_A/1.0", { y: Buffer.from("third") }, true);
      expect(readdirSync(await at.restored("job_A/1.0"))).toEqual(["y"]);
      const other = begin();
      await other.copy("job_A/1.0", { y: Buffer.from("third") });
      expect(at.place.stored()).toHaveLength(other.place.stored().length);
    });

    it("copies are listed by their folder, and a removed one leaves nothing", async () => {
      const at = begin();
      for (const name of ["job_A/1.0", "job_A/1.1", "checkpoints/job_B/3"]) {
        await at.copy(name, { z: Buffer.from(name) });
      }
      expect((await at.replica.names("job_A")).sort()).toEqual(["1.0", "1.1"]);
      expect(await at.replica.names("checkpoints/job_B")).toEqual(["3"]);
      expect(await at.replica.names("job_C")).toEqual([]);
      await at.replica.remove("job_A/1.0");
      expect(await at.replica.names("job_A")).toEqual(["1.1"]);
      await at.replica.remove("job_A");
      await at.replica.remove("job_none");
      await at.replica.remove("checkpoints/job_B");
      expect(at.place.stored()).toEqual([]);
    });

    it("only copies that are too old are pruned, of any worker", async () => {
      const at = begin();
      await at.copy("job_A/1.0", { x: Buffer.from("x") });
      await at.copy("checkpoints/job_B/3", { x: Buffer.from("x") });
      await at.replica.prune();
      expect(await at.replica.names("job_A")).toEqual(["1.0"]);
      expect(await at.replica.names("checkpoints/job_B")).toEqual(["3"]);
      await at.place.open(-1).prune();
      expect(at.place.stored()).toEqual([]);
    });

    it("a copy that fails half-way does not exist, and leaves nothing", async () => {
      const at = begin();
      const files = ["x", "gone"].map((name) => ({ name, bytes: 1 }));
      const folder = at.folderOf({ x: Buffer.from("x") });
      const source = { root: at.folder, folder, files };
      await expect(at.replica.copy(source, "job_A/1.0")).rejects.toThrow();
      expect(await at.replica.names("job_A")).toEqual([]);
      expect(at.place.stored()).toEqual([]);
    });

    it("two workers that copy the same at once leave one whole copy", async () => {
      const at = begin();
      const content = randomBytes(300_000);
      const copies = [at.replica, at.place.open(HOUR_MS)];
      await Promise.all(copies.map((each) => at.copy("job_A/1.0", { x: content }, false, each)));
      expect(await at.replica.names("job_A")).toEqual(["1.0"]);
      const back = readFileSync(join(await at.restored("job_A/1.0"), "x"));
      expect(back.equals(content)).toBe(true);
    });
  });
}

/** A store with a folder for what is copied to it and from it. */
class Tried {
  readonly folder = mkdtempSync(join(tmpdir(), "heddle-copies-"));
  readonly place: ReplicaPlace;
  readonly replica: ArtifactReplica;

  constructor(place: ReplicaPlace) {
    this.place = place;
    this.replica = place.open(HOUR_MS);
    onTestFinished(() => rmSync(this.folder, { recursive: true }));
  }

  /** A new folder with the files, by its name. */
  folderOf(files: Readonly<Record<string, Buffer>>): string {
    const from = mkdtempSync(join(this.folder, "from-"));
    for (const [path, content] of Object.entries(files)) {
      mkdirSync(join(from, path, ".."), { recursive: true });
      writeFileSync(join(from, path), content);
    }
    return from.slice(this.folder.length + 1);
  }

  async copy(
    name: string,
    files: Readonly<Record<string, Buffer>>,
    isReplaced = false,
    to = this.replica,
  ): Promise<void> {
    const folder = this.folderOf(files);
    const source = { root: this.folder, folder, files: await filesBeneath(this.folder, folder) };
    await to.copy(source, name, isReplaced);
  }

  async restored(name: string): Promise<string> {
    const to = mkdtempSync(join(this.folder, "to-"));
    await this.replica.restore(name, to);
    return to;
  }
}
