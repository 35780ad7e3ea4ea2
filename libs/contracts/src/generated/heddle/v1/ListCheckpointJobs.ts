// Original file: proto/parameters.proto


export interface ListCheckpointJobs {
}

export interface ListCheckpointJobs__Output {
}
