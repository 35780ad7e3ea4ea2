// Original file: proto/worker.proto


export interface GpuSplit {
  'mode'?: (string);
  'shares'?: (number | string)[];
  'mainGpu'?: (number);
}

export interface GpuSplit__Output {
  'mode': (string);
  'shares': (number)[];
  'mainGpu': (number);
}
