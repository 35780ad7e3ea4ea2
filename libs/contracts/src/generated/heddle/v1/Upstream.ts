// Original file: proto/worker.proto


export interface Upstream {
  'baseUrl'?: (string);
  'command'?: (string);
  'model'?: (string);
  'dialect'?: (string);
  'apiKey'?: (string);
  'probe'?: (string);
  'maxConcurrency'?: (number);
  'connectTimeoutMs'?: (number);
  'firstByteTimeoutMs'?: (number);
  'idleTimeoutMs'?: (number);
  'maxRetries'?: (number);
  'probeIntervalMs'?: (number);
}

export interface Upstream__Output {
  'baseUrl': (string);
  'command': (string);
  'model': (string);
  'dialect': (string);
  'apiKey': (string);
  'probe': (string);
  'maxConcurrency': (number);
  'connectTimeoutMs': (number);
  'firstByteTimeoutMs': (number);
  'idleTimeoutMs': (number);
  'maxRetries': (number);
  'probeIntervalMs': (number);
}
