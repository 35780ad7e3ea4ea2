// holds: state-old-directory

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { gunzipSync } from "node:zlib";
import { SecretKeys } from "@heddle/base/secret-keys";
import { eventually } from "@heddle/base/testing/eventually";
import { NEWEST_VERSION } from "@heddle/control/cluster-version";
import { afterEach, beforeEach, expect, test } from "vitest";
import { MasterGroup, REAL_MASTER } from "../../test/master-group.ts";
import { openStoppedMember } from "./stopped-member.ts";

/** Made by `npm run golden:data` with the build of that version, and never made again. */
interface GoldenData {
  readonly version: number;
  readonly adminKey: string;
  readonly keys: readonly string[];
  readonly index: number;
  readonly commands: number;
  readonly hash: string;
  readonly files: Readonly<Record<string, string>>;
}

const NAME = "master-1";
const VERSIONS = [2];
let group: MasterGroup;

beforeEach(() => {
  group = new MasterGroup(1, [], undefined, REAL_MASTER);
});
afterEach(() => group.close());

/** Puts the files where the group's master finds them. */
function unpack(version: number): GoldenData {
  const file = new URL(`../../testdata/data-v${version}.json.gz`, import.meta.url);
  const golden = JSON.parse(gunzipSync(readFileSync(file)).toString()) as GoldenData;
  for (const [name, content] of Object.entries(golden.files)) {
    const path = join(group.directory(NAME), name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, Buffer.from(content, "base64"));
  }
  writeFileSync(join(group.folder, "admin-key"), golden.adminKey);
  return golden;
}

test.each(VERSIONS)("golden data: that of version %i gives the same state", async (version) => {
  const { index, commands, hash } = unpack(version);
  const member = await openStoppedMember(group.directory(NAME), new SecretKeys());
  const { control } = member.machine;
  await member.close();
  expect(member.state.last.index).toBe(index);
  expect([control.commands, control.hash, control.version]).toEqual([commands, hash, version]);
});

test.each(VERSIONS)(
  "golden data: a master starts on that of version %i and continues",
  async (version) => {
    const { keys, index } = unpack(version);
    await group.start(NAME);
    expect(await group.keyNames(NAME)).toEqual(keys);
    await eventually(async () => {
      return (await group.status(NAME)).cluster_version === NEWEST_VERSION;
    }, "the version rises");
    await group.createKey(NAME, "a new one");
    await group.end(NAME, "SIGKILL");
    await group.start(NAME);
    expect(await group.keyNames(NAME)).toEqual(["a new one", ...keys]);
    expect((await group.status(NAME)).applied).toBeGreaterThan(index);
  },
);
