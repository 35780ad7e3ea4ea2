import { Duplex } from "node:stream";

/** Ways between workers of one model: through the last stage's worker, or from stage to stage. */
export type StageRoute = "hub" | "ring";

/**
 * What carries the frames of `count` stages where each way takes this long. Of a ring the frames take one
 * way to the next stage, of a hub two.
 */
export function slowWays(route: StageRoute, count: number, hopMs: number) {
  return (frames: Duplex, stage: number): Duplex => {
    const isLast = stage === count - 2;
    return delayed(frames, hopMs, route === "hub" || isLast ? hopMs : 0);
  };
}

function delayed(frames: Duplex, toMs: number, fromMs: number): Duplex {
  const way = new Duplex({
    read: () => {},
    write: (bytes: Uint8Array, _encoding, done) => {
      setTimeout(() => frames.write(bytes), toMs);
      done();
    },
    destroy: (error, done) => {
      frames.destroy();
      done(error);
    },
  });
  frames.on("data", (bytes: Uint8Array) => setTimeout(() => way.push(bytes), fromMs));
  frames.on("close", () => way.destroy());
  frames.on("error", () => way.destroy());
  return way;
}
