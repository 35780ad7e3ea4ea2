import { X509Certificate } from "node:crypto";
import { accessSync, constants, readFileSync, type Stats, statfsSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { credentialsFile, readCredentials } from "../connection.ts";
import { DataDirectory, neededMiB } from "../up/data-directory.ts";
import { certificateFinding } from "./certificate-checks.ts";
import { type Finding, Reporter } from "./finding.ts";

const GIB = 2 ** 30;
const MIB = 2 ** 20;
/** Room for logs, snapshots and the weights of a small model. */
const USUAL_FREE_BYTES = 5 * GIB;
const LEAST_FREE_FILES = 10_000;
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/;
const ANY_MASTERS = Number.MAX_SAFE_INTEGER;

/** The data directory of `heddle up`, and what it holds. */
export function checkData(path: string, masters: number): Finding[] {
  const report = new Reporter("data-directory", path);
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat && !stat.isDirectory()) {
    return [
      report.error("it is no directory", "Remove the file, or give another with --data DIR."),
    ];
  }
  const place = stat ? path : existingAbove(path);
  const fault = writeFault(place);
  if (fault) {
    const fix = `Make ${place} writable for this user, or give another directory with --data DIR.`;
    return [report.error(fault, fix)];
  }
  if (!stat) return [report.ok("heddle up makes it at its first start"), disk(path, masters)];
  return [directory(path, stat), disk(path, masters), credentials(path), ...authority(path)];
}

function directory(path: string, stat: Stats): Finding {
  const report = new Reporter("data-directory", path);
  if ((stat.mode & 0o077) !== 0) {
    const mode = (stat.mode & 0o777).toString(8);
    const what = `other users may enter it (mode ${mode}); it holds keys`;
    return report.warning(what, `chmod 700 ${path}`);
  }
  try {
    new DataDirectory(path).checkMasters(ANY_MASTERS);
  } catch (error) {
    return report.error(...sentences((error as Error).message));
  }
  return report.ok("it can be written, by its owner only");
}

function disk(path: string, masters: number): Finding {
  const place = existingAbove(path);
  const report = new Reporter("disk", place);
  const { bavail, bsize, files, ffree } = statfsSync(place);
  const freeBytes = bavail * bsize;
  const fix = "Free disk space there, or give a directory on another disk with --data DIR.";
  const needed = neededMiB(path, masters);
  const what = `${Math.floor(freeBytes / MIB)} MiB are free`;
  if (freeBytes < needed * MIB) return report.error(`${what}; a start needs ${needed} MiB`, fix);
  if (files > 0 && ffree < LEAST_FREE_FILES) {
    return report.warning(`the disk has room for ${ffree} more files only`, fix);
  }
  if (freeBytes < USUAL_FREE_BYTES) {
    return report.warning(
      `${what}; logs and models usually need ${USUAL_FREE_BYTES / GIB} GiB`,
      fix,
    );
  }
  return report.ok(what);
}

function credentials(path: string): Finding {
  const file = credentialsFile(path);
  const report = new Reporter("credentials", file);
  try {
    if (!readCredentials(path)) return report.skipped("heddle up writes it at its first start");
  } catch (error) {
    return report.error(...sentences((error as Error).message));
  }
  const mode = statSync(file).mode & 0o777;
  if ((mode & 0o077) === 0) return report.ok("its owner only may read it");
  const what = `other users may read the administrator's key (mode ${mode.toString(8)})`;
  return report.warning(
    what,
    `chmod 600 ${file}, and \`heddle keys rotate\` if others use this machine.`,
  );
}

/** The authority of a cluster with TLS. Nothing without one, or where its file is encrypted. */
function authority(path: string): Finding[] {
  const file = join(path, "cluster-ca.pem");
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch {
    return [];
  }
  const pem = CERTIFICATE.exec(text)?.[0];
  return pem ? [certificateFinding(file, new X509Certificate(pem), "authority")] : [];
}

/** The nearest folder above that exists, in which the path would be made. */
function existingAbove(path: string): string {
  const above = dirname(path);
  if (statSync(path, { throwIfNoEntry: false }) || above === path) return path;
  return existingAbove(above);
}

function writeFault(path: string): string | undefined {
  try {
    accessSync(path, constants.W_OK | constants.X_OK);
    return undefined;
  } catch (error) {
    return `it cannot be written: ${(error as NodeJS.ErrnoException).code ?? String(error)}`;
  }
}

/** The cause, and what follows its first sentence: the remedy. */
function sentences(message: string): [what: string, fix: string] {
  const end = message.indexOf(". ");
  return end < 0 ? [message, message] : [message.slice(0, end), message.slice(end + 2)];
}
