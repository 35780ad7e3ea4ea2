import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseApiKey } from "@heddle/auth/api-key";
import { afterAll, describe, expect, it } from "vitest";
import { DataDirectory } from "./data-directory.ts";

const scratch = mkdtempSync(join(tmpdir(), "heddle-data-"));
let count = 0;
const fresh = () => new DataDirectory(join(scratch, `d${++count}`));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

describe("data directory", () => {
  it("is readable by its owner only", () => {
    expect(statSync(fresh().path).mode & 0o777).toBe(0o700);
  });

  it("is refused where a file is", () => {
    const file = join(scratch, "file");
    writeFileSync(file, "");
    expect(() => new DataDirectory(file)).toThrow(/cannot be created.*--data DIR/);
  });

  it.skipIf(process.platform !== "linux")("is refused in /proc, without a hang", () => {
    expect(() => new DataDirectory("/proc/nope/deeper")).toThrow(/cannot be created.*--data DIR/);
  });

  // holds: start-bad-options
  it.skipIf(process.platform !== "linux")("is refused in a read-only place", () => {
    const data = new DataDirectory("/sys/kernel");
    expect(() => data.lock("http://a")).toThrow(/\/sys\/kernel cannot be written: .*--data DIR/);
  });

  it("reports the required and free disk space before anything is started", () => {
    const data = fresh();
    data.checkRoom(0);
    expect(() => data.checkRoom(100_000)).toThrow(
      new RegExp(
        `${data.path} is too full: \\d+ MiB are free, and 6400016 MiB are needed.*--data DIR`,
      ),
    );
  });

  it("is locked by one process until it releases the lock", () => {
    const data = fresh();
    const lock = data.lock("http://a");
    expect(() => data.lock("http://b")).toThrow(`process ${process.pid} at http://a`);
    lock.release();
    data.lock("http://b").release();
  });

  it("is taken over from a dead process, also if its process id is reused", () => {
    const data = fresh();
    const reused = { pid: process.pid, address: "http://a", started: "not this process's" };
    for (const holder of [{ ...reused, pid: 2 ** 22 + 1 }, reused]) {
      writeFileSync(join(data.path, "lock"), JSON.stringify(holder));
      data.lock("http://b").release();
    }
    writeFileSync(join(data.path, "lock"), "damaged");
    data.lock("http://b").release();
  });

  // holds: start-table
  it("creates its secrets once and keeps them", () => {
    const data = fresh();
    const first = data.secrets(["http://a"]);
    expect(first.isNew).toBe(true);
    expect(parseApiKey(first.apiKey).ok).toBe(true);
    expect(data.secrets(["http://b", "http://c"])).toEqual({ ...first, isNew: false });
  });

  it("is refused with masters of several clusters, with the remedies", () => {
    const data = fresh();
    const master = (number: number, identity: object) => {
      const control = join(data.path, `master-${number}`, "control");
      mkdirSync(control, { recursive: true });
      writeFileSync(join(control, "identity.json"), JSON.stringify(identity));
    };
    master(2, { cluster: "old" });
    master(3, { cluster: "old" });
    master(10, {});
    data.checkMasters(10);
    expect(() => data.checkMasters(2)).toThrow(/holds master-3 and master-10 too, more than/);
    master(1, { cluster: "recovered" });
    const all = [1, 2, 3].map((number) => join(data.path, `master-${number}`));
    // The number of masters makes no difference: the others may be started later.
    for (const count of [1, 3, 10]) {
      expect(() => data.checkMasters(count)).toThrow(
        `Either to keep master-1 (cluster recovered): rm -r ${all[1]} ${all[2]}; or to keep master-2 and master-3 (cluster old): rm -r ${all[0]}`,
      );
    }
  });
});
