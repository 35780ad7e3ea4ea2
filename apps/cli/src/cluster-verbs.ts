import type { Command } from "commander";

/** Makes an action that loads a command's module on first use and keeps its exit code. */
export type Lazy = (
  load: () => Promise<(command: Command) => Promise<number>>,
) => (...args: unknown[]) => Promise<void>;

/** Adds `heddle cluster ...`. */
export function addCluster(program: Command, lazy: Lazy): void {
  const cluster = program
    .command("cluster")
    .description("manage the masters and the cluster state");
  addViews(cluster, lazy);
  addMembership(cluster, lazy);
  addStateFiles(cluster, lazy);
}

function addViews(cluster: Command, lazy: Lazy): void {
  cluster
    .command("status")
    .description("show the leader, the term and the log position of each master")
    .action(lazy(async () => (await import("./commands/cluster/cluster.ts")).clusterStatus));
  cluster
    .command("members")
    .description("list masters and their replication lag")
    .action(lazy(async () => (await import("./commands/cluster/cluster.ts")).clusterMembers));
  cluster
    .command("metrics")
    .description("show cluster metrics: nodes, GPUs, calls, tokens, queues, Raft")
    .action(
      lazy(async () => (await import("./commands/cluster/cluster-figures.ts")).clusterMetrics),
    );
  cluster
    .command("resources")
    .description("show capacity and use of each node")
    .action(
      lazy(
        async () => (await import("./commands/cluster/cluster-figures.ts")).readClusterResources,
      ),
    );
}

function addMembership(cluster: Command, lazy: Lazy): void {
  cluster
    .command("add")
    .description("add a master, or replace a lost one, and print its start command")
    .argument("<master>", "master name")
    .requiredOption("--address <host:port>", "gRPC address for the other masters")
    .option("--data <dir>", "data directory in the printed command", "DIR")
    .option(
      "--cluster-token-file <file>",
      "cluster token file in the printed command",
      "TOKEN_FILE",
    )
    .option(
      "--secrets-key-file <file>",
      "secrets key file in the printed command",
      "SECRETS_KEY_FILE",
    )
    .option("--join-token-file <file>", "file to write the join token to", "join-token")
    .option(
      "--insecure-nodes",
      "add a master of another machine though the masters run without TLS",
    )
    .action(lazy(async () => (await import("./commands/cluster/cluster-add.ts")).addMaster));
  cluster
    .command("join-token")
    .description("create a join token for one node, valid for an hour (TLS only)")
    .requiredOption("--role <role>", "master, worker or parameter-server")
    .requiredOption("--name <name>", "node name, as in its certificate")
    .action(lazy(async () => (await import("./commands/cluster/cluster-add.ts")).createJoinToken));
  cluster
    .command("enroll")
    .description(
      "create a key by which any number of workers and parameter servers join (TLS only)",
    )
    .argument("[name]", "name of the key", "node enrolment")
    .option("--expires-at <time>", "when it expires, as 2030-01-31T00:00:00Z (default: never)")
    .action(lazy(async () => (await import("./commands/cluster/cluster-enroll.ts")).enrollKey));
  cluster
    .command("remove")
    .description("remove a master from the cluster")
    .argument("<master>", "master name")
    .option("--force", "remove it even if documents are lost with it")
    .action(lazy(async () => (await import("./commands/cluster/cluster.ts")).removeMaster));
  cluster
    .command("transfer")
    .description("transfer leadership")
    .argument("[master]", "new leader (default: any other master)")
    .action(
      lazy(async () => (await import("./commands/cluster/cluster.ts")).transferLeadershipCommand),
    );
  cluster
    .command("snapshot")
    .description("take a snapshot on the answering master and truncate its log")
    .action(lazy(async () => (await import("./commands/cluster/cluster.ts")).takeSnapshot));
}

/** Read or written state may be encrypted; the environment variable of the same name works too. */
const SECRETS_KEY = ["--secrets-key-file <file>", "file with the masters' secrets keys"] as const;

function addStateFiles(cluster: Command, lazy: Lazy): void {
  cluster
    .command("backup")
    .description("back up the cluster state to a file, encrypted if the masters have a secrets key")
    .argument("[file]", "output file (default: heddle-CLUSTER-INDEX.backup)")
    .option("--data <dir>", "read the data directory of a stopped master instead")
    .option(...SECRETS_KEY)
    .option("--no-documents", "leave out the contents of documents")
    .option("--stale", "read the local state of the master, even without a leader")
    .action(lazy(async () => (await import("./commands/cluster/cluster-backup.ts")).backupCluster));
  cluster
    .command("state")
    .description("show the state at a position of the log that the master still keeps")
    .requiredOption("--at <position>", "position, as `applied` of heddle cluster status")
    .option("--collection <name>", "what to list: keys, roles, settings, projects, jobs and others")
    .option("--limit <n>", "maximum number of items")
    .option("--after <id>", "the item before the first")
    .action(lazy(async () => (await import("./commands/cluster/cluster-state.ts")).showPastState));
  cluster
    .command("restore")
    .description("restore a backup as a new cluster of one master")
    .argument("<file>", "backup file")
    .requiredOption("--data <dir>", "data directory of the master; must be missing or empty")
    .option(...SECRETS_KEY)
    .option("--name <name>", "name of the master", "master-1")
    .option("--address <host:port>", "gRPC address for joining masters", "127.0.0.1:8081")
    .action(
      lazy(async () => (await import("./commands/cluster/cluster-offline.ts")).restoreCluster),
    );
  cluster
    .command("recover")
    .description("recover from a permanent loss of the majority with one stopped master")
    .requiredOption("--data <dir>", "data directory of the stopped master")
    .option(...SECRETS_KEY)
    .option("--address <host:port>", "gRPC address for joining masters (default: unchanged)")
    .option("--yes", "perform the recovery; without it, only show what would be lost")
    .action(
      lazy(async () => (await import("./commands/cluster/cluster-offline.ts")).recoverCluster),
    );
}
