import { AppError } from "@heddle/base/errors";
import { ConnectionError, HeddleError, TimeoutError } from "@heddle/client/errors";
import { Heddle } from "@heddle/client/heddle";
import type { ClusterStatusReply } from "@heddle/contracts/api/cluster";
import type { DetailedHealth } from "@heddle/contracts/api/health";
import type { Worker } from "@heddle/contracts/api/workers";
import { type Connection, clientOf } from "../connection.ts";
import { certificateFinding, shownCertificates } from "./certificate-checks.ts";
import { type Finding, Reporter } from "./finding.ts";
import { checkNodes } from "./node-checks.ts";

const TIMEOUT_MS = 3_000;
/** Log entries that a master may lack for a moment. */
const USUAL_LAG = 1_000;
const FULL_PERCENT = 90;
const USUAL_SKEW_MS = 1_000;
/** Clocks may differ this much before certificates are refused. */
const MAX_SKEW_MS = 5 * 60_000;
const CLOCK_FIX = "Synchronize the clock: `timedatectl set-ntp true`, or chrony.";

/** A master's answer, and how far its clock is ahead of this machine's. */
interface Answer {
  readonly endpoint: string;
  readonly health: DetailedHealth;
  readonly aheadMs: number;
  /** By how much the difference may be wrong. */
  readonly doubtMs: number;
}

/** Everything that a cluster shows of itself: from its masters' health to each of its nodes. */
export async function checkCluster(connection: Connection, version: string): Promise<Finding[]> {
  const endpoints = [connection.endpoint, ...(connection.others ?? [])];
  const asked = await Promise.all(endpoints.map(ask));
  const answers = asked.flatMap((each) => ("health" in each ? [each] : []));
  const findings = [
    ...asked.map((each) => ("health" in each ? reached(each) : each)),
    ...answers.flatMap((answer) => [
      ...clock(answer),
      ...versions(answer, version),
      ...use(answer),
    ]),
    ...clocksAmong(answers),
    ...(await certificatesOf(endpoints)),
  ];
  const [first, ...others] = answers.map(({ endpoint }) => endpoint);
  if (first === undefined) return findings;
  const answering = { ...connection, endpoint: first, others };
  return [...findings, ...(await checkState(answering))];
}

async function ask(endpoint: string): Promise<Answer | Finding> {
  const report = new Reporter("reachable", endpoint);
  const heddle = new Heddle({ endpoint, timeout: TIMEOUT_MS });
  const sentMs = Date.now();
  try {
    const health = await heddle.cluster.detailedHealth();
    const [thereMs, backMs] = [Date.parse(health.timestamp), Date.now()];
    if (Number.isNaN(thereMs)) throw new SyntaxError("no timestamp");
    const doubtMs = (backMs - sentMs) / 2;
    return { endpoint, health, aheadMs: thereMs - (sentMs + doubtMs), doubtMs };
  } catch (error) {
    if (error instanceof TimeoutError) {
      return report.error(`no answer within ${TIMEOUT_MS / 1_000} s`, reachFix(error.code));
    }
    if (!(error instanceof ConnectionError)) {
      return report.error("another program than Heddle answers", "Give a master with --endpoint.");
    }
    const failure = error.cause as Error;
    const cause = (failure.cause ?? failure) as NodeJS.ErrnoException;
    const code = typeof cause.code === "string" ? cause.code : cause.message;
    return report.error(`no answer (${code})`, reachFix(code));
  }
}

function reachFix(code: string): string {
  if (code === "ENOTFOUND" || code === "EAI_AGAIN") return "Correct the name, or its DNS entry.";
  if (code === "ECONNREFUSED") return "Start the master there (`heddle up`), or correct the port.";
  if (/CERT|SELF_SIGNED|SIGNATURE|ALTNAME/.test(code)) {
    return "Give the authority of its certificate with --ca FILE, or a certificate with this name.";
  }
  if (/SSL|EPROTO/.test(code)) return "Begin the address with http:// where the port has no TLS.";
  return "Check that the master runs, and that no firewall is between.";
}

function reached({ endpoint, health }: Answer): Finding {
  const report = new Reporter("reachable", endpoint);
  const faults = Object.values(health.components).flatMap((part) =>
    "detail" in part && part.detail ? [part.detail] : [],
  );
  if (health.status === "ok") return report.ok(`the master answers, version ${health.version}`);
  const what = `the master is ${health.status}: ${faults.join("; ") || "it does not say why"}`;
  return report.warning(what, "See `heddle cluster status` and `heddle workers list -o wide`.");
}

function clock({ endpoint, aheadMs, doubtMs }: Answer): Finding[] {
  return [skew(new Reporter("clock", endpoint), "this machine", aheadMs, doubtMs)];
}

/** Masters among themselves: each against the first. */
function clocksAmong([first, ...others]: readonly Answer[]): Finding[] {
  return others.map((other) => {
    const report = new Reporter("clock", other.endpoint);
    const doubtMs = first!.doubtMs + other.doubtMs;
    return skew(report, first!.endpoint, other.aheadMs - first!.aheadMs, doubtMs);
  });
}

function skew(report: Reporter, than: string, aheadMs: number, doubtMs: number): Finding {
  const sureMs = Math.max(0, Math.abs(aheadMs) - doubtMs);
  const seconds = (Math.abs(aheadMs) / 1_000).toFixed(1);
  const what = `its clock is ${seconds} s ${aheadMs < 0 ? "behind" : "ahead of"} that of ${than}`;
  if (sureMs > MAX_SKEW_MS) return report.error(`${what}: new certificates are refused`, CLOCK_FIX);
  return sureMs > USUAL_SKEW_MS ? report.warning(what, CLOCK_FIX) : report.ok(what);
}

function versions({ endpoint, health }: Answer, own: string): Finding[] {
  const report = new Reporter("version", endpoint);
  if (health.version === own) return [report.ok(`version ${own}, as this command`)];
  const what = `the master has version ${health.version}, this command ${own}`;
  return [report.warning(what, "Install the same version on every machine.")];
}

function use({ endpoint, health }: Answer): Finding[] {
  const { disk_percent: disk, memory_percent: memory } = health.resource_usage;
  const report = new Reporter("master-resources", endpoint);
  const what = `the master's disk is ${Math.round(disk)} % full, its memory ${Math.round(memory)} %`;
  if (disk <= FULL_PERCENT && memory <= FULL_PERCENT) return [report.ok(what)];
  return [report.warning(what, "Free space, or move the master to a larger machine.")];
}

/** Checks the certificates of HTTPS endpoints; the masters' gRPC ports are checked below. */
async function certificatesOf(endpoints: readonly string[]): Promise<Finding[]> {
  const secure = endpoints.filter((endpoint) => endpoint.startsWith("https:"));
  const found = secure.map(async (endpoint) => {
    const { hostname, port } = new URL(endpoint);
    const [own] = await shownCertificates(hostname.replace(/^\[|\]$/g, ""), Number(port || 443));
    return own ? [certificateFinding(endpoint, own, "endpoint")] : [];
  });
  return (await Promise.all(found)).flat();
}

async function checkState(connection: Connection): Promise<Finding[]> {
  const report = new Reporter("key", connection.endpoint);
  const heddle = clientOf(connection, 0);
  try {
    const status = await heddle.cluster.status();
    const [workers, models] = await Promise.all([heddle.workers.list(), heddle.models.list()]);
    return [
      report.ok("the key may read the cluster's state"),
      ...consensus(status),
      ...(await masterPorts(status)),
      ...checkNodes(workers as Worker[], status.version),
      ...models.map(({ id, replicas, waiting_for: waiting = [] }) => {
        const model = new Reporter("model", id);
        const failed = (replicas ?? []).filter(({ phase }) => phase === "failed");
        const faults = [...failed.map(({ node, message }) => `${node}: ${message}`), ...waiting];
        if (faults.length === 0) return model.ok("no replica has failed");
        return model.warning(
          faults.join("; "),
          "Repair that, then `heddle models pull` the model.",
        );
      }),
    ];
  } catch (error) {
    if (!(error instanceof HeddleError || error instanceof AppError)) {
      const what = `its answer cannot be understood: ${(error as Error).message}`;
      return [report.error(what, "Give a master with --endpoint, of this command's version.")];
    }
    return [report.error(error.message, stateFix(error.code))];
  }
}

function stateFix(code: string): string {
  if (code === "permission_denied") {
    return "Give a key with the permission cluster:read (--api-key).";
  }
  if (code === "invalid_api_key") {
    return "Give a valid key with --api-key or HEDDLE_API_KEY; `heddle up` writes its own to credentials.json.";
  }
  return "See the master's log, and `heddle cluster status`.";
}

function consensus(status: ClusterStatusReply): Finding[] {
  const { leader, quorum, masters, answered_by: by = "the master" } = status;
  const report = new Reporter("leader", by);
  const { voters, required, reachable } = quorum;
  const found = `${reachable} of ${voters} voters are reachable`;
  const first = !leader
    ? report.error(
        `there is no leader, so changes are refused: ${found}, ${required} are needed`,
        "Start the missing masters; with a majority lost for good see docs/runbooks/forced-recovery.md.",
      )
    : reachable < voters
      ? report.warning(`${leader} leads; ${found}`, "Start the missing masters, or replace them.")
      : report.ok(`${leader} leads; ${found}`);
  const late = masters.map(({ id, lag = 0, connected = true, behind = false }) => {
    const master = new Reporter("replication", id);
    const fix = `Check that ${id} runs, its network and its disk (\`heddle cluster members\`).`;
    if (!connected) return master.warning("the leader has no connection to it", fix);
    if (!behind && (lag ?? 0) <= USUAL_LAG) return master.ok(`it lacks ${lag ?? 0} entries`);
    return master.warning(`it lacks ${lag} entries of the log`, fix);
  });
  return [first, ...late];
}

/** Masters' certificates, where they have some and this machine reaches them. */
async function masterPorts({ masters }: ClusterStatusReply): Promise<Finding[]> {
  const found = masters.map(async ({ id, address = "" }) => {
    const [, host = "", port] = /^\[?(.*?)\]?:(\d+)$/.exec(address) ?? [];
    if (port === undefined) return [];
    const [own, authority] = await shownCertificates(host, Number(port));
    if (!own) {
      const report = new Reporter("certificate", `${id} (${address})`);
      return [report.skipped("no TLS there, or it cannot be reached from here")];
    }
    const where = `${id} (${address})`;
    return [
      certificateFinding(where, own, "node"),
      ...(authority ? [certificateFinding(where, authority, "authority")] : []),
    ];
  });
  return (await Promise.all(found)).flat();
}
