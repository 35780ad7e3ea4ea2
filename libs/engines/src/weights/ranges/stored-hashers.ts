import { createSHA256, type IHasher } from "hash-wasm";
import type { Hasher, PassHashers } from "./tensor-index.ts";

/** Digests whose progress can be kept. Those of Node, which are some times faster, cannot. */
export async function storedHashers(): Promise<PassHashers> {
  const [whole, piece] = await Promise.all([createSHA256(), createSHA256()]);
  return { whole: stored(whole), piece: stored(piece) };
}

function stored(hasher: IHasher): Hasher {
  return {
    begin: () => {
      hasher.init();
    },
    update: (bytes) => {
      hasher.update(bytes);
    },
    end: () => hasher.digest("hex"),
    save: () => Buffer.from(hasher.save()).toString("base64"),
    load: (state) => {
      hasher.load(Buffer.from(state, "base64"));
    },
  };
}
