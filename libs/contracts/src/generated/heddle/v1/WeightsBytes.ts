// Original file: proto/worker.proto


export interface WeightsBytes {
  'data'?: (Buffer | Uint8Array | string);
}

export interface WeightsBytes__Output {
  'data': (Buffer);
}
