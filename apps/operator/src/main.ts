import { ERROR_TABLE, toAppError } from "@heddle/base/errors";
import { createLogger, type Log, logLevelOf } from "@heddle/observability/logger";

type Run = (args: readonly string[], log: Log) => Promise<void>;

/** Loaded by name: the client of Kubernetes is large, and init containers do without it. */
const COMMANDS: Readonly<Record<string, () => Promise<Run>>> = {
  "create-secret": async () => (await import("./install/create-secret.ts")).createSecret,
  shrink: async () => (await import("./install/shrink.ts")).shrink,
  "create-files": async () => (await import("./install/create-files.ts")).createFiles,
  run: async () => (await import("./run-operator.ts")).runOperator,
  enroll: async () => (await import("./install/enroll.ts")).enroll,
};

const USAGE = `Usage: heddle-operator COMMAND [flags]
  run --endpoints URL,... --key-file FILE --namespaces NAME,... --health-port PORT
      [--projects NAMESPACE=PROJECT+PROJECT,...] [--cluster NAME --cluster-namespace NAMESPACE [--metrics-port PORT --metrics-service NAME]
       [--pending-pods FILE]] [--role-binding NAME]
      [--kueue VERSION --kueue-gpus RESOURCE]
      carries out the objects of these namespaces (* for all); --projects names the projects of their
      jobs (absent: the one of its own name, of the cluster's namespace default; * for all, with the
      rights of an administrator); with --cluster it makes
      an object for each node and one for the cluster, whose masters' StatefulSet is NAME-master, and
      takes models, queues and projects of its namespace; with --metrics-port it serves
      the group external.metrics.k8s.io to autoscalers, through the Service NAME; with --pending-pods it
      makes Pods that ask Kubernetes for nodes while gangs wait for room; with --role-binding it keeps
      the RoleBinding NAME of each namespace while jobs and models there have a finalizer; with --kueue
      jobs that name a queue of Kueue wait until it admits their Workloads
  create-secret --name NAME --namespace NAMESPACE
      makes the Secret of a new cluster in Kubernetes, unless it exists
  create-files --directory DIR
      writes the secrets of a new cluster as files, unless they exist
  shrink --prefix PREFIX --masters N --pod-domain DOMAIN --endpoints URL,... --key-file FILE
      takes the masters PREFIX-N and later ones out of the group; where no master answers, it does
      nothing if none of these has an address as PREFIX-N.DOMAIN
  enroll --role ROLE --name NAME --data DIR --endpoints URL,... --key-file FILE --token-file FILE
         [--if-running-seconds N]
      writes a join token for a node whose data directory has no certificate; with
      --if-running-seconds nothing where no master answers within N seconds
`;

const logger = createLogger({ service: "operator", level: logLevelOf(process.env) });
const [name = "--help", ...args] = process.argv.slice(2);
const load = COMMANDS[name];
if (load) {
  try {
    const run = await load();
    await run(args, logger);
  } catch (error) {
    const { code, message } = toAppError(error);
    logger.error({ code }, message);
    process.exitCode = ERROR_TABLE[code].exit;
  }
} else {
  process[name === "--help" ? "stdout" : "stderr"].write(USAGE);
  process.exitCode = name === "--help" ? 0 : ERROR_TABLE.invalid_value.exit;
}
