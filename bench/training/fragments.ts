import { seededRandom } from "@heddle/base/random";
import { ThreadedExchange } from "@heddle/parameters/node-group/threaded-exchange";
import { initialParameters } from "@heddle/training/initialize";
import { runWeaveWorker } from "@heddle/training/weave/weave-worker";
import { openJob, startParameterProcess } from "./parameter-process.ts";
import {
  evaluationLoss,
  heldOutHalves,
  LOCAL_STEPS,
  specs,
  WEAVE_RULES,
  WORKERS,
  weaveWork,
} from "./weave.ts";

/** The quality of a model whose fragments are exchanged while its workers compute. */
export interface FragmentsFigure {
  readonly name: string;
  readonly seed: number;
  /**
   * The loss on the half of the held-out text by which `mixing_factor` is chosen, in nats a
   * letter.
   */
  readonly choosingLoss: number;
  /** The loss on the other half. */
  readonly loss: number;
}

const OVERLAP = LOCAL_STEPS / 4;
const WAYS = [
  { name: "F=1, tau=0", fragments: 1, overlap_steps: 0, mixing_factor: 0 },
  ...[0, 0.25, 0.5, 0.75].map((mixing) => ({
    name: `F=4, tau=${OVERLAP}, alpha=${mixing}`,
    fragments: 4,
    overlap_steps: OVERLAP,
    mixing_factor: mixing,
  })),
];
type Way = (typeof WAYS)[number];

/** The weave run of two workers with H=32 and int8, its model whole and in fragments. */
export async function measureFragments(
  steps: number,
  seeds: readonly number[],
): Promise<FragmentsFigure[]> {
  const { address: server } = await startParameterProcess();
  const figures: FragmentsFigure[] = [];
  for (const seed of seeds) {
    for (const way of WAYS) figures.push(await train(way, { server, steps, seed }));
  }
  return figures;
}

async function train(
  { name, ...way }: Way,
  {
    server,
    steps,
    seed,
  }: { readonly server: string; readonly steps: number; readonly seed: number },
): Promise<FragmentsFigure> {
  const { fragments } = way;
  const job = await openJob({
    parameters: specs.map(({ name: tensor, shape }) => ({ name: tensor, shape, type: "f32" })),
    workers: WORKERS,
    fragments,
    consistency: { kind: "bsp" },
    ...WEAVE_RULES,
    servers: Array.from({ length: fragments }, () => server),
  });
  const alone = Array.from({ length: fragments }, () => ({
    member: 0,
    members: 1,
    socketPath: "",
  }));
  const exchanges = await Promise.all(
    Array.from({ length: WORKERS }, (_, rank) =>
      ThreadedExchange.start({ ...job, rank, host: "127.0.0.1" }, alone),
    ),
  );
  const first = initialParameters(specs, seededRandom(seed));
  await exchanges[0]?.initialize(first);
  const copies = exchanges.map(() => structuredClone(first));
  await Promise.all(
    exchanges.map((exchange, rank) => {
      const work = weaveWork(copies[rank] ?? first, { rank, steps, seed });
      return runWeaveWorker({
        ...work,
        config: { ...work.config, ...way },
        client: exchange,
        exchange,
        signal: new AbortController().signal,
      });
    }),
  );
  for (const exchange of exchanges) await exchange.close();
  const [choosingLoss = 0, loss = 0] = [
    await evaluationLoss(copies[0] ?? first, heldOutHalves[0]),
    await evaluationLoss(copies[0] ?? first, heldOutHalves[1]),
  ];
  console.log(`${name}, seed ${seed}: ${choosingLoss.toFixed(4)} ${loss.toFixed(4)}`);
  return { name, seed, choosingLoss, loss };
}
