import type { Command } from "commander";

/** Makes an action that loads a command's module on first use and keeps its exit code. */
export type Lazy = (
  load: () => Promise<(command: Command) => Promise<number>>,
) => (...args: unknown[]) => Promise<void>;

/** Adds `heddle cluster ...`. */
export function addCluster(program: Command, lazy: Lazy): void {
  const cluster = program.command("cluster").description("the masters of the cluster, as a group");
  addViews(cluster, lazy);
  addMembership(cluster, lazy);
  addStateFiles(cluster, lazy);
}

function addViews(cluster: Command, lazy: Lazy): void {
  cluster
    .command("status")
    .description("the leader, the term and how far each master is")
    .action(lazy(async () => (await import("./commands/cluster/cluster.ts")).clusterStatus));
  cluster
    .command("members")
    .description("list the masters, and how far each is behind")
    .action(lazy(async () => (await import("./commands/cluster/cluster.ts")).clusterMembers));
  cluster
    .command("metrics")
    .description("the cluster's figures: nodes, GPUs, calls, tokens, queues, Raft")
    .action(
      lazy(async () => (await import("./commands/cluster/cluster-figures.ts")).clusterMetrics),
    );
  cluster
    .command("resources")
    .description("what each node offers, and what is in use")
    .action(
      lazy(
        async () => (await import("./commands/cluster/cluster-figures.ts")).readClusterResources,
      ),
    );
}

function addMembership(cluster: Command, lazy: Lazy): void {
  cluster
    .command("add")
    .description("add a further master, or a lost one anew, and say how to start it")
    .argument("<master>", "its name")
    .requiredOption("--address <host:port>", "where the other masters will reach its gRPC")
    .option("--data <dir>", "its data directory, for the command that is printed", "DIR")
    .option("--cluster-token-file <file>", "its copy of the cluster token", "TOKEN_FILE")
    .option(
      "--secrets-key-file <file>",
      "its copy of the masters' secrets keys",
      "SECRETS_KEY_FILE",
    )
    .option("--join-token-file <file>", "where to write its join token", "join-token")
    .action(lazy(async () => (await import("./commands/cluster/cluster-add.ts")).addMaster));
  cluster
    .command("join-token")
    .description("under TLS: make a token with which one node may join, within the hour")
    .requiredOption("--role <role>", "master, worker or parameter-server")
    .requiredOption("--name <name>", "the node's name, which its certificate bears")
    .action(lazy(async () => (await import("./commands/cluster/cluster-add.ts")).createJoinToken));
  cluster
    .command("remove")
    .description("take a master out of the group, after which its process may be ended")
    .argument("<master>", "its name")
    .action(lazy(async () => (await import("./commands/cluster/cluster.ts")).removeMaster));
  cluster
    .command("transfer")
    .description("have the leader hand over")
    .argument("[master]", "whom to (else any other)")
    .action(
      lazy(async () => (await import("./commands/cluster/cluster.ts")).transferLeadershipCommand),
    );
  cluster
    .command("snapshot")
    .description("have the master that answers take a snapshot and shorten its log")
    .action(lazy(async () => (await import("./commands/cluster/cluster.ts")).takeSnapshot));
}

/** Read or written state may be encrypted; the environment variable of the same name works too. */
const SECRETS_KEY = ["--secrets-key-file <file>", "file with the masters' secrets keys"] as const;

function addStateFiles(cluster: Command, lazy: Lazy): void {
  cluster
    .command("backup")
    .description(
      "write the whole state to one file, encrypted where the masters have a secrets key",
    )
    .argument("[file]", "where to (else heddle-CLUSTER-INDEX.backup)")
    .option("--data <dir>", "take it from a stopped master's data directory instead")
    .option(...SECRETS_KEY)
    .option("--stale", "take what the master knows, even while there is no leader")
    .action(lazy(async () => (await import("./commands/cluster/cluster-backup.ts")).backupCluster));
  cluster
    .command("restore")
    .description("make a new cluster of one master from a backup")
    .argument("<file>", "the backup")
    .requiredOption("--data <dir>", "the master's data directory: missing or empty")
    .option(...SECRETS_KEY)
    .option("--name <name>", "the master's name", "master-1")
    .option("--address <host:port>", "where masters that join reach its gRPC", "127.0.0.1:8081")
    .action(
      lazy(async () => (await import("./commands/cluster/cluster-offline.ts")).restoreCluster),
    );
  cluster
    .command("recover")
    .description("when a majority is lost for good: make one stopped master the whole group")
    .requiredOption("--data <dir>", "the stopped survivor's data directory")
    .option(...SECRETS_KEY)
    .option("--address <host:port>", "where masters that join reach its gRPC (else as before)")
    .option("--yes", "do it; without this it only says what would be lost")
    .action(
      lazy(async () => (await import("./commands/cluster/cluster-offline.ts")).recoverCluster),
    );
}
