import { readFileSync } from "node:fs";
import { totalmem } from "node:os";
import { join } from "node:path";
import { programOf } from "@heddle/base/testing/programs";
import { nodeFlags } from "../../apps/cli/src/up/node-flags.ts";
import { MasterGroup } from "../../apps/master/test/master-group.ts";
import { benchFolder, repositoryRoot } from "../support/command-line.ts";
import { sampleProcess, threadsCpuMs } from "../support/proc-files.ts";

/** Segments of the log as masters have them by default. */
const WAL_SEGMENT_MIB = 64;

/** A master's use of the machine at one moment. */
export interface MasterUse {
  readonly name: string;
  readonly isLeader: boolean;
  /** The processor time of all its threads since it started. */
  readonly cpuMs: number;
  readonly residentBytes: number;
  readonly descriptors: number;
}

/** Masters as `heddle up` starts them, and what they use. */
export class MastersUnderTest {
  readonly group: MasterGroup;

  private constructor(group: MasterGroup) {
    this.group = group;
  }

  /** Profiles of the masters' main threads are written to `profiles`, where it is given. */
  static async start(count: number, profiles?: string): Promise<MastersUnderTest> {
    const profiling = profiles
      ? ["--cpu-prof", `--cpu-prof-dir=${join(benchFolder, profiles)}`]
      : [];
    const program = [
      ...nodeFlags("master", totalmem()),
      ...profiling,
      // A bundle starts faster, and hides which module a function is of.
      profiles ? join(repositoryRoot, "apps/master/dist/main.js") : programOf("master"),
    ];
    const flags = ["--wal-segment-mib", String(WAL_SEGMENT_MIB)];
    const group = new MasterGroup(count, flags, () => ({}), program);
    await group.startAll();
    const masters = new MastersUnderTest(group);
    await masters.#withoutModels(await group.leader());
    return masters;
  }

  get clusterToken(): string {
    return readFileSync(this.group.tokenFile, "utf8").trim();
  }

  /** host:port of the master's gRPC server. */
  address(name: string): Promise<string> {
    return this.group.address(name);
  }

  async uses(): Promise<readonly MasterUse[]> {
    const leader = await this.group.leader();
    return this.group.runningNames.map((name) => {
      const pid = this.group.pid(name) ?? 0;
      const { residentBytes = 0, descriptors = 0 } = sampleProcess(pid) ?? {};
      return {
        name,
        isLeader: name === leader,
        cpuMs: threadsCpuMs(pid),
        residentBytes,
        descriptors,
      };
    });
  }

  /** The built-in model would be loaded on each worker. */
  async #withoutModels(leader: string): Promise<void> {
    const reply = await this.group.request(leader, "GET", "/api/v1/models");
    const { data } = (await reply.json()) as { readonly data: readonly { readonly id: string }[] };
    for (const { id } of data) await this.group.change(leader, "DELETE", `/api/v1/models/${id}`);
  }

  async stop(): Promise<void> {
    for (const name of this.group.runningNames) await this.group.end(name, "SIGTERM");
    await this.group.close();
  }
}
