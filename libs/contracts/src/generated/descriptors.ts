/** All of proto/ as JSON of protobufjs. */
export const DESCRIPTORS = `{
 "nested": {
  "heddle": {
   "nested": {
    "v1": {
     "nested": {
      "Cluster": {
       "methods": {
        "Attach": {
         "requestType": "NodeReport",
         "requestStream": true,
         "responseType": "AttachReply",
         "responseStream": true
        }
       }
      },
      "NodeKind": {
       "values": {
        "NODE_KIND_UNSPECIFIED": 0,
        "NODE_KIND_WORKER": 1,
        "NODE_KIND_PARAMETER_SERVER": 2
       }
      },
      "NodeReport": {
       "oneofs": {
        "report": {
         "oneof": [
          "register",
          "heartbeat"
         ]
        }
       },
       "fields": {
        "register": {
         "type": "Register",
         "id": 1
        },
        "heartbeat": {
         "type": "Heartbeat",
         "id": 2
        }
       }
      },
      "Register": {
       "fields": {
        "nodeId": {
         "type": "string",
         "id": 1
        },
        "incarnation": {
         "type": "string",
         "id": 2
        },
        "kind": {
         "type": "NodeKind",
         "id": 3
        },
        "name": {
         "type": "string",
         "id": 4
        },
        "address": {
         "type": "string",
         "id": 5
        },
        "version": {
         "type": "string",
         "id": 6
        },
        "hardware": {
         "type": "Hardware",
         "id": 7
        },
        "labels": {
         "keyType": "string",
         "type": "string",
         "id": 8
        },
        "taints": {
         "rule": "repeated",
         "type": "string",
         "id": 9
        },
        "rack": {
         "type": "string",
         "id": 10
        },
        "fabric": {
         "type": "string",
         "id": 11
        },
        "executors": {
         "rule": "repeated",
         "type": "string",
         "id": 12
        },
        "algorithms": {
         "rule": "repeated",
         "type": "string",
         "id": 13
        },
        "environments": {
         "rule": "repeated",
         "type": "string",
         "id": 14
        },
        "algorithmSchemas": {
         "keyType": "string",
         "type": "string",
         "id": 15
        },
        "taskIsolation": {
         "type": "string",
         "id": 20
        },
        "maxTasks": {
         "type": "uint32",
         "id": 21
        },
        "maxTasksChosen": {
         "type": "bool",
         "id": 22
        },
        "engineFeatures": {
         "rule": "repeated",
         "type": "string",
         "id": 23
        }
       }
      },
      "Hardware": {
       "fields": {
        "platform": {
         "type": "string",
         "id": 1
        },
        "cpuModel": {
         "type": "string",
         "id": 2
        },
        "cpuCount": {
         "type": "uint32",
         "id": 3
        },
        "memoryBytes": {
         "type": "uint64",
         "id": 4
        },
        "gpus": {
         "rule": "repeated",
         "type": "Gpu",
         "id": 5
        },
        "localSsdBytes": {
         "type": "uint64",
         "id": 6
        },
        "ioOperationsPerSec": {
         "type": "uint64",
         "id": 7
        },
        "networkMbps": {
         "type": "uint32",
         "id": 8
        },
        "hostId": {
         "type": "string",
         "id": 9
        },
        "diskId": {
         "type": "string",
         "id": 10
        },
        "limits": {
         "rule": "repeated",
         "type": "ResourceLimit",
         "id": 11
        }
       }
      },
      "ResourceLimit": {
       "fields": {
        "id": {
         "type": "string",
         "id": 1
        },
        "memoryBytes": {
         "type": "uint64",
         "id": 2
        },
        "cpuMilli": {
         "type": "uint32",
         "id": 3
        },
        "isOffer": {
         "type": "bool",
         "id": 4
        }
       }
      },
      "Gpu": {
       "fields": {
        "index": {
         "type": "uint32",
         "id": 1
        },
        "uuid": {
         "type": "string",
         "id": 2
        },
        "name": {
         "type": "string",
         "id": 3
        },
        "memoryBytes": {
         "type": "uint64",
         "id": 4
        },
        "memoryUsedBytes": {
         "type": "uint64",
         "id": 5
        },
        "utilizationPercent": {
         "type": "double",
         "id": 6
        },
        "temperatureCelsius": {
         "type": "double",
         "id": 7
        },
        "powerWatts": {
         "type": "double",
         "id": 8
        },
        "simulated": {
         "type": "bool",
         "id": 9
        },
        "fault": {
         "type": "string",
         "id": 10
        }
       }
      },
      "Heartbeat": {
       "fields": {
        "cpuPercent": {
         "type": "double",
         "id": 1
        },
        "memoryUsedBytes": {
         "type": "uint64",
         "id": 2
        },
        "diskFreeBytes": {
         "type": "uint64",
         "id": 3
        },
        "diskTotalBytes": {
         "type": "uint64",
         "id": 4
        },
        "gpus": {
         "rule": "repeated",
         "type": "Gpu",
         "id": 5
        },
        "replicas": {
         "rule": "repeated",
         "type": "Replica",
         "id": 6
        },
        "tasks": {
         "rule": "repeated",
         "type": "TaskStatus",
         "id": 7
        },
        "refusals": {
         "type": "Refusals",
         "id": 8
        },
        "deviceReadings": {
         "type": "uint64",
         "id": 9
        },
        "refusesLeader": {
         "type": "string",
         "id": 10
        },
        "residentBytes": {
         "type": "uint64",
         "id": 11
        },
        "executorFault": {
         "type": "string",
         "id": 12
        }
       }
      },
      "Refusals": {
       "fields": {
        "unauthenticated": {
         "type": "uint64",
         "id": 1
        },
        "invalid": {
         "type": "uint64",
         "id": 2
        },
        "stale": {
         "type": "uint64",
         "id": 3
        }
       }
      },
      "Replica": {
       "oneofs": {
        "_others": {
         "oneof": [
          "others"
         ]
        }
       },
       "fields": {
        "deployment": {
         "type": "string",
         "id": 1
        },
        "phase": {
         "type": "string",
         "id": 2
        },
        "pulledBytes": {
         "type": "uint64",
         "id": 3
        },
        "totalBytes": {
         "type": "uint64",
         "id": 4
        },
        "message": {
         "type": "string",
         "id": 5
        },
        "load": {
         "type": "EngineLoad",
         "id": 6
        },
        "info": {
         "type": "EngineInfo",
         "id": 7
        },
        "failureCode": {
         "type": "string",
         "id": 8
        },
        "others": {
         "type": "uint32",
         "id": 9,
         "options": {
          "proto3_optional": true
         }
        },
        "stage": {
         "type": "Stage",
         "id": 10
        },
        "unreachable": {
         "rule": "repeated",
         "type": "UnreachableNode",
         "id": 11
        }
       }
      },
      "UnreachableNode": {
       "fields": {
        "node": {
         "type": "string",
         "id": 1
        },
        "forMs": {
         "type": "uint64",
         "id": 2
        }
       }
      },
      "EngineLoad": {
       "fields": {
        "running": {
         "type": "uint32",
         "id": 1
        },
        "waiting": {
         "type": "uint32",
         "id": 2
        },
        "maxSequences": {
         "type": "uint32",
         "id": 3
        },
        "maxQueued": {
         "type": "uint32",
         "id": 4
        },
        "kvUsedTokens": {
         "type": "uint64",
         "id": 5
        },
        "kvTokens": {
         "type": "uint64",
         "id": 6
        },
        "promptTokens": {
         "type": "uint64",
         "id": 7
        },
        "cachedTokens": {
         "type": "uint64",
         "id": 8
        },
        "generatedTokens": {
         "type": "uint64",
         "id": 9
        },
        "residentBytes": {
         "type": "uint64",
         "id": 10
        },
        "restarts": {
         "type": "uint32",
         "id": 11
        },
        "draftTokens": {
         "type": "uint64",
         "id": 12
        },
        "acceptedTokens": {
         "type": "uint64",
         "id": 13
        },
        "stage": {
         "type": "StageLoad",
         "id": 14
        }
       }
      },
      "StageLoad": {
       "fields": {
        "steps": {
         "type": "uint64",
         "id": 1
        },
        "busyMs": {
         "type": "uint64",
         "id": 2
        },
        "idleMs": {
         "type": "uint64",
         "id": 3
        },
        "hops": {
         "type": "uint64",
         "id": 4
        },
        "hopMicros": {
         "type": "uint64",
         "id": 5
        }
       }
      },
      "EngineInfo": {
       "fields": {
        "engine": {
         "type": "string",
         "id": 1
        },
        "device": {
         "type": "string",
         "id": 2
        },
        "contextTokens": {
         "type": "uint32",
         "id": 3
        },
        "vocabularySize": {
         "type": "uint32",
         "id": 4
        },
        "parameters": {
         "type": "uint64",
         "id": 5
        },
        "fileType": {
         "type": "string",
         "id": 6
        },
        "reasoning": {
         "type": "string",
         "id": 7
        },
        "chatTemplate": {
         "type": "string",
         "id": 8
        },
        "ranks": {
         "type": "bool",
         "id": 9
        }
       }
      },
      "AttachReply": {
       "fields": {
        "heartbeatIntervalMs": {
         "type": "uint32",
         "id": 1
        },
        "masterId": {
         "type": "string",
         "id": 2
        },
        "members": {
         "rule": "repeated",
         "type": "string",
         "id": 3
        },
        "addresses": {
         "rule": "repeated",
         "type": "string",
         "id": 5
        },
        "cluster": {
         "type": "string",
         "id": 4
        },
        "revoked": {
         "rule": "repeated",
         "type": "RevokedNode",
         "id": 6
        }
       }
      },
      "RevokedNode": {
       "fields": {
        "node": {
         "type": "string",
         "id": 1
        },
        "atMs": {
         "type": "uint64",
         "id": 2
        }
       }
      },
      "WorkerTasks": {
       "methods": {
        "Session": {
         "requestType": "TaskCommand",
         "requestStream": true,
         "responseType": "TaskReport",
         "responseStream": true
        }
       }
      },
      "TaskCommand": {
       "oneofs": {
        "command": {
         "oneof": [
          "hello",
          "lease",
          "start",
          "stop",
          "forget",
          "renew",
          "checkpoint",
          "forgetCheckpoints"
         ]
        }
       },
       "fields": {
        "hello": {
         "type": "SessionHello",
         "id": 1
        },
        "lease": {
         "type": "LeaseTask",
         "id": 2
        },
        "start": {
         "type": "StartTask",
         "id": 3
        },
        "stop": {
         "type": "StopTask",
         "id": 4
        },
        "forget": {
         "type": "ForgetTask",
         "id": 5
        },
        "renew": {
         "type": "RenewLeases",
         "id": 6
        },
        "checkpoint": {
         "type": "CheckpointTask",
         "id": 7
        },
        "forgetCheckpoints": {
         "type": "ForgetCheckpoints",
         "id": 8
        }
       }
      },
      "SessionHello": {
       "fields": {
        "term": {
         "type": "uint64",
         "id": 1
        },
        "masterId": {
         "type": "string",
         "id": 2
        },
        "leaseMs": {
         "type": "uint32",
         "id": 3
        },
        "cluster": {
         "type": "string",
         "id": 4
        }
       }
      },
      "TaskId": {
       "fields": {
        "jobId": {
         "type": "string",
         "id": 1
        },
        "attempt": {
         "type": "uint32",
         "id": 2
        },
        "rank": {
         "type": "uint32",
         "id": 3
        },
        "incarnation": {
         "type": "uint32",
         "id": 4
        }
       }
      },
      "LeaseTask": {
       "fields": {
        "task": {
         "type": "TaskId",
         "id": 1
        },
        "spec": {
         "type": "TaskSpec",
         "id": 2
        },
        "devices": {
         "rule": "repeated",
         "type": "uint32",
         "id": 3
        },
        "gpuMilli": {
         "type": "uint32",
         "id": 4
        },
        "logGrant": {
         "type": "string",
         "id": 5
        }
       }
      },
      "TaskSpec": {
       "fields": {
        "jobName": {
         "type": "string",
         "id": 1
        },
        "project": {
         "type": "string",
         "id": 2
        },
        "executor": {
         "type": "string",
         "id": 3
        },
        "containerImage": {
         "type": "string",
         "id": 4
        },
        "command": {
         "rule": "repeated",
         "type": "string",
         "id": 5
        },
        "workingDirectory": {
         "type": "string",
         "id": 6
        },
        "environment": {
         "keyType": "string",
         "type": "string",
         "id": 7
        },
        "algorithm": {
         "type": "string",
         "id": 8
        },
        "config": {
         "type": "string",
         "id": 9
        },
        "tasks": {
         "type": "uint32",
         "id": 10
        },
        "cpuMilli": {
         "type": "uint32",
         "id": 11
        },
        "memoryBytes": {
         "type": "uint64",
         "id": 12
        },
        "diskBytes": {
         "type": "uint64",
         "id": 13
        },
        "maxRuntimeMs": {
         "type": "uint64",
         "id": 14
        },
        "graceMs": {
         "type": "uint32",
         "id": 15
        },
        "checkpointIntervalMs": {
         "type": "uint32",
         "id": 16
        },
        "keepCheckpoints": {
         "type": "uint32",
         "id": 17
        },
        "checkpointSignal": {
         "type": "string",
         "id": 18
        },
        "hangTimeoutMs": {
         "type": "uint32",
         "id": 19
        },
        "progressIntervalMs": {
         "type": "uint32",
         "id": 20
        },
        "resumeFrom": {
         "type": "string",
         "id": 21
        },
        "failureTolerance": {
         "type": "uint32",
         "id": 22
        },
        "hostNetwork": {
         "type": "bool",
         "id": 30
        },
        "readOnly": {
         "type": "bool",
         "id": 31
        },
        "shmBytes": {
         "type": "uint64",
         "id": 32
        },
        "profile": {
         "type": "string",
         "id": 33
        },
        "inputs": {
         "rule": "repeated",
         "type": "TaskInput",
         "id": 34
        },
        "when": {
         "type": "string",
         "id": 35
        },
        "queue": {
         "type": "string",
         "id": 36
        }
       }
      },
      "TaskInput": {
       "fields": {
        "name": {
         "type": "string",
         "id": 1
        },
        "source": {
         "type": "string",
         "id": 2
        },
        "sha256": {
         "type": "string",
         "id": 3
        },
        "bytes": {
         "type": "uint64",
         "id": 4
        },
        "skipped": {
         "type": "bool",
         "id": 5
        }
       }
      },
      "StartTask": {
       "fields": {
        "task": {
         "type": "TaskId",
         "id": 1
        },
        "peers": {
         "rule": "repeated",
         "type": "string",
         "id": 2
        },
        "parameterServers": {
         "rule": "repeated",
         "type": "string",
         "id": 3
        },
        "nodes": {
         "rule": "repeated",
         "type": "string",
         "id": 4
        },
        "jobToken": {
         "type": "bytes",
         "id": 5
        },
        "readyServers": {
         "rule": "repeated",
         "type": "string",
         "id": 6
        },
        "ticket": {
         "type": "string",
         "id": 7
        },
        "secretVariables": {
         "keyType": "string",
         "type": "string",
         "id": 8
        },
        "lostServers": {
         "rule": "repeated",
         "type": "string",
         "id": 9
        }
       }
      },
      "StopTask": {
       "fields": {
        "task": {
         "type": "TaskId",
         "id": 1
        },
        "checkpoint": {
         "type": "bool",
         "id": 2
        },
        "graceMs": {
         "type": "uint32",
         "id": 3
        },
        "why": {
         "type": "string",
         "id": 4
        }
       }
      },
      "ForgetTask": {
       "fields": {
        "task": {
         "type": "TaskId",
         "id": 1
        },
        "dropArtifacts": {
         "type": "bool",
         "id": 2
        }
       }
      },
      "RenewLeases": {
       "fields": {
        "request": {
         "type": "uint64",
         "id": 1
        }
       }
      },
      "CheckpointTask": {
       "fields": {
        "task": {
         "type": "TaskId",
         "id": 1
        }
       }
      },
      "ForgetCheckpoints": {
       "fields": {
        "jobIds": {
         "rule": "repeated",
         "type": "string",
         "id": 1
        },
        "emptyJobIds": {
         "rule": "repeated",
         "type": "string",
         "id": 2
        },
        "unknownJobIds": {
         "rule": "repeated",
         "type": "string",
         "id": 3
        }
       }
      },
      "TaskReport": {
       "oneofs": {
        "report": {
         "oneof": [
          "inventory",
          "status",
          "leaseRequest",
          "checkpointFolders"
         ]
        }
       },
       "fields": {
        "inventory": {
         "type": "TaskInventory",
         "id": 1
        },
        "status": {
         "type": "TaskStatus",
         "id": 2
        },
        "leaseRequest": {
         "type": "LeaseRequest",
         "id": 3
        },
        "checkpointFolders": {
         "type": "CheckpointFolders",
         "id": 4
        }
       }
      },
      "CheckpointFolders": {
       "fields": {
        "jobIds": {
         "rule": "repeated",
         "type": "string",
         "id": 1
        }
       }
      },
      "LeaseRequest": {
       "fields": {
        "request": {
         "type": "uint64",
         "id": 1
        }
       }
      },
      "TaskInventory": {
       "fields": {
        "tasks": {
         "rule": "repeated",
         "type": "TaskStatus",
         "id": 1
        }
       }
      },
      "TaskStatus": {
       "fields": {
        "task": {
         "type": "TaskId",
         "id": 1
        },
        "phase": {
         "type": "string",
         "id": 2
        },
        "rendezvous": {
         "type": "string",
         "id": 3
        },
        "exit": {
         "type": "TaskExit",
         "id": 4
        },
        "progress": {
         "type": "TaskProgress",
         "id": 5
        },
        "cluster": {
         "type": "string",
         "id": 6
        }
       }
      },
      "TaskExit": {
       "oneofs": {
        "_exitCode": {
         "oneof": [
          "exitCode"
         ]
        }
       },
       "fields": {
        "exitCode": {
         "type": "int32",
         "id": 1,
         "options": {
          "proto3_optional": true
         }
        },
        "signal": {
         "type": "string",
         "id": 2
        },
        "reason": {
         "type": "string",
         "id": 3
        },
        "message": {
         "type": "string",
         "id": 4
        },
        "lastLines": {
         "rule": "repeated",
         "type": "string",
         "id": 5
        },
        "endedUnixMs": {
         "type": "uint64",
         "id": 6
        },
        "asked": {
         "type": "bool",
         "id": 7
        },
        "sickDevices": {
         "rule": "repeated",
         "type": "uint32",
         "id": 8
        },
        "artifacts": {
         "rule": "repeated",
         "type": "Artifact",
         "id": 9
        }
       }
      },
      "Artifact": {
       "fields": {
        "name": {
         "type": "string",
         "id": 1
        },
        "bytes": {
         "type": "uint64",
         "id": 2
        },
        "sha256": {
         "type": "string",
         "id": 3
        },
        "pieces": {
         "type": "string",
         "id": 4
        }
       }
      },
      "TaskProgress": {
       "oneofs": {
        "_checkpointStep": {
         "oneof": [
          "checkpointStep"
         ]
        }
       },
       "fields": {
        "line": {
         "type": "string",
         "id": 1
        },
        "atUnixMs": {
         "type": "uint64",
         "id": 2
        },
        "checkpoint": {
         "type": "string",
         "id": 3
        },
        "checkpointUnixMs": {
         "type": "uint64",
         "id": 4
        },
        "checkpointStep": {
         "type": "double",
         "id": 5,
         "options": {
          "proto3_optional": true
         }
        },
        "checkpointBytes": {
         "type": "uint64",
         "id": 6
        }
       }
      },
      "TaskLogs": {
       "methods": {
        "Ship": {
         "requestType": "LogChunk",
         "requestStream": true,
         "responseType": "LogAck",
         "responseStream": true
        },
        "Read": {
         "requestType": "LogRange",
         "responseType": "LogChunk",
         "responseStream": true
        }
       }
      },
      "LogFile": {
       "fields": {
        "task": {
         "type": "TaskId",
         "id": 1
        },
        "stream": {
         "type": "string",
         "id": 2
        }
       }
      },
      "LogChunk": {
       "fields": {
        "file": {
         "type": "LogFile",
         "id": 1
        },
        "offset": {
         "type": "uint64",
         "id": 2
        },
        "data": {
         "type": "bytes",
         "id": 3
        },
        "times": {
         "rule": "repeated",
         "type": "LogLineTime",
         "id": 4
        },
        "complete": {
         "type": "bool",
         "id": 5
        },
        "first": {
         "type": "uint64",
         "id": 6
        },
        "nodeId": {
         "type": "string",
         "id": 7
        },
        "grant": {
         "type": "string",
         "id": 8
        }
       }
      },
      "LogLineTime": {
       "fields": {
        "at": {
         "type": "uint32",
         "id": 1
        },
        "unixMs": {
         "type": "uint64",
         "id": 2
        }
       }
      },
      "LogAck": {
       "fields": {
        "file": {
         "type": "LogFile",
         "id": 1
        },
        "durable": {
         "type": "uint64",
         "id": 2
        },
        "fenced": {
         "type": "bool",
         "id": 3
        },
        "complete": {
         "type": "bool",
         "id": 4
        }
       }
      },
      "LogRange": {
       "fields": {
        "file": {
         "type": "LogFile",
         "id": 1
        },
        "offset": {
         "type": "uint64",
         "id": 2
        },
        "maxBytes": {
         "type": "uint64",
         "id": 3
        }
       }
      },
      "TaskArtifacts": {
       "methods": {
        "Read": {
         "requestType": "ArtifactRange",
         "responseType": "ArtifactChunk",
         "responseStream": true
        }
       }
      },
      "ArtifactRange": {
       "fields": {
        "task": {
         "type": "TaskId",
         "id": 1
        },
        "name": {
         "type": "string",
         "id": 2
        },
        "offset": {
         "type": "uint64",
         "id": 3
        },
        "maxBytes": {
         "type": "uint64",
         "id": 4
        },
        "digests": {
         "type": "bool",
         "id": 5
        }
       }
      },
      "ArtifactChunk": {
       "fields": {
        "data": {
         "type": "bytes",
         "id": 1
        }
       }
      },
      "WorkerModels": {
       "methods": {
        "Load": {
         "requestType": "LoadRequest",
         "responseType": "LoadReply"
        },
        "Unload": {
         "requestType": "UnloadRequest",
         "responseType": "UnloadReply"
        },
        "Pull": {
         "requestType": "PullRequest",
         "responseType": "PullProgress",
         "responseStream": true
        },
        "PlanStages": {
         "requestType": "PlanStagesRequest",
         "responseType": "StagePlan"
        },
        "SizeModel": {
         "requestType": "SizeModelRequest",
         "responseType": "ModelSize"
        }
       }
      },
      "WorkerStages": {
       "methods": {
        "Join": {
         "requestType": "StageBytes",
         "requestStream": true,
         "responseType": "StageBytes",
         "responseStream": true
        },
        "ReadWeights": {
         "requestType": "WeightsRange",
         "responseType": "WeightsBytes",
         "responseStream": true
        }
       }
      },
      "LoadRequest": {
       "fields": {
        "deployment": {
         "type": "Deployment",
         "id": 1
        },
        "holders": {
         "rule": "repeated",
         "type": "string",
         "id": 2
        }
       }
      },
      "LoadReply": {
       "fields": {}
      },
      "UnloadRequest": {
       "fields": {
        "deployment": {
         "type": "string",
         "id": 1
        },
        "graceMs": {
         "type": "uint32",
         "id": 2
        }
       }
      },
      "UnloadReply": {
       "fields": {}
      },
      "PullRequest": {
       "fields": {
        "weights": {
         "type": "Weights",
         "id": 1
        }
       }
      },
      "PullProgress": {
       "fields": {
        "pulledBytes": {
         "type": "uint64",
         "id": 1
        },
        "totalBytes": {
         "type": "uint64",
         "id": 2
        },
        "source": {
         "type": "string",
         "id": 3
        },
        "done": {
         "type": "bool",
         "id": 4
        }
       }
      },
      "Deployment": {
       "fields": {
        "key": {
         "type": "string",
         "id": 1
        },
        "engine": {
         "type": "string",
         "id": 2
        },
        "weights": {
         "type": "Weights",
         "id": 3
        },
        "options": {
         "type": "EngineOptions",
         "id": 4
        },
        "upstream": {
         "type": "Upstream",
         "id": 5
        },
        "split": {
         "type": "GpuSplit",
         "id": 6
        },
        "stage": {
         "type": "Stage",
         "id": 7
        }
       }
      },
      "Stage": {
       "fields": {
        "from": {
         "type": "uint32",
         "id": 1
        },
        "to": {
         "type": "uint32",
         "id": 2
        },
        "driver": {
         "type": "string",
         "id": 3
        },
        "peers": {
         "rule": "repeated",
         "type": "StagePeer",
         "id": 4
        },
        "memoryBytes": {
         "type": "uint64",
         "id": 5
        },
        "contextTokens": {
         "type": "uint32",
         "id": 6
        },
        "kvTokens": {
         "type": "uint32",
         "id": 7
        },
        "maxSequences": {
         "type": "uint32",
         "id": 8
        },
        "index": {
         "type": "string",
         "id": 9
        }
       }
      },
      "StagePeer": {
       "fields": {
        "node": {
         "type": "string",
         "id": 1
        },
        "address": {
         "type": "string",
         "id": 2
        },
        "deployment": {
         "type": "string",
         "id": 3
        },
        "from": {
         "type": "uint32",
         "id": 4
        },
        "to": {
         "type": "uint32",
         "id": 5
        },
        "memoryBytes": {
         "type": "uint64",
         "id": 6
        }
       }
      },
      "PlanStagesRequest": {
       "fields": {
        "weights": {
         "type": "Weights",
         "id": 1
        },
        "options": {
         "type": "EngineOptions",
         "id": 2
        },
        "workers": {
         "rule": "repeated",
         "type": "StageWorker",
         "id": 3
        },
        "maxStages": {
         "type": "uint32",
         "id": 4
        }
       }
      },
      "SizeModelRequest": {
       "fields": {
        "weights": {
         "type": "Weights",
         "id": 1
        },
        "options": {
         "type": "EngineOptions",
         "id": 2
        },
        "whole": {
         "type": "bool",
         "id": 3
        }
       }
      },
      "ModelSize": {
       "fields": {
        "memoryBytes": {
         "type": "uint64",
         "id": 1
        }
       }
      },
      "StageWorker": {
       "fields": {
        "node": {
         "type": "string",
         "id": 1
        },
        "memoryBytes": {
         "type": "uint64",
         "id": 2
        },
        "name": {
         "type": "string",
         "id": 3
        },
        "rack": {
         "type": "string",
         "id": 4
        },
        "fabric": {
         "type": "string",
         "id": 5
        }
       }
      },
      "StagePlan": {
       "fields": {
        "stages": {
         "rule": "repeated",
         "type": "PlannedStage",
         "id": 1
        },
        "contextTokens": {
         "type": "uint32",
         "id": 2
        },
        "kvTokens": {
         "type": "uint32",
         "id": 3
        },
        "maxSequences": {
         "type": "uint32",
         "id": 4
        },
        "index": {
         "type": "string",
         "id": 5
        }
       }
      },
      "PlannedStage": {
       "fields": {
        "node": {
         "type": "string",
         "id": 1
        },
        "from": {
         "type": "uint32",
         "id": 2
        },
        "to": {
         "type": "uint32",
         "id": 3
        },
        "memoryBytes": {
         "type": "uint64",
         "id": 4
        }
       }
      },
      "StageBytes": {
       "oneofs": {
        "content": {
         "oneof": [
          "open",
          "opened",
          "frames"
         ]
        }
       },
       "fields": {
        "open": {
         "type": "OpenStage",
         "id": 1
        },
        "opened": {
         "type": "StageOpened",
         "id": 2
        },
        "frames": {
         "type": "bytes",
         "id": 3
        }
       }
      },
      "WeightsRange": {
       "fields": {
        "index": {
         "type": "string",
         "id": 1
        },
        "offset": {
         "type": "uint64",
         "id": 2
        },
        "bytes": {
         "type": "uint64",
         "id": 3
        }
       }
      },
      "WeightsBytes": {
       "fields": {
        "data": {
         "type": "bytes",
         "id": 1
        }
       }
      },
      "OpenStage": {
       "fields": {
        "deployment": {
         "type": "string",
         "id": 1
        },
        "build": {
         "type": "string",
         "id": 2
        }
       }
      },
      "StageOpened": {
       "fields": {}
      },
      "GpuSplit": {
       "fields": {
        "mode": {
         "type": "string",
         "id": 1
        },
        "shares": {
         "rule": "repeated",
         "type": "float",
         "id": 2
        },
        "mainGpu": {
         "type": "uint32",
         "id": 3
        }
       }
      },
      "Upstream": {
       "fields": {
        "baseUrl": {
         "type": "string",
         "id": 1
        },
        "command": {
         "type": "string",
         "id": 2
        },
        "model": {
         "type": "string",
         "id": 3
        },
        "dialect": {
         "type": "string",
         "id": 4
        },
        "apiKey": {
         "type": "string",
         "id": 5
        },
        "probe": {
         "type": "string",
         "id": 6
        },
        "maxConcurrency": {
         "type": "uint32",
         "id": 7
        },
        "connectTimeoutMs": {
         "type": "uint32",
         "id": 8
        },
        "firstByteTimeoutMs": {
         "type": "uint32",
         "id": 9
        },
        "idleTimeoutMs": {
         "type": "uint32",
         "id": 10
        },
        "maxRetries": {
         "type": "uint32",
         "id": 11
        },
        "probeIntervalMs": {
         "type": "uint32",
         "id": 12
        }
       }
      },
      "Weights": {
       "fields": {
        "key": {
         "type": "string",
         "id": 1
        },
        "file": {
         "type": "string",
         "id": 2
        },
        "sources": {
         "rule": "repeated",
         "type": "string",
         "id": 3
        },
        "sha256": {
         "type": "string",
         "id": 4
        },
        "sizeBytes": {
         "type": "uint64",
         "id": 5
        },
        "license": {
         "type": "string",
         "id": 6
        }
       }
      },
      "EngineOptions": {
       "oneofs": {
        "_contextTokens": {
         "oneof": [
          "contextTokens"
         ]
        },
        "_kvTokens": {
         "oneof": [
          "kvTokens"
         ]
        },
        "_maxSequences": {
         "oneof": [
          "maxSequences"
         ]
        },
        "_maxQueued": {
         "oneof": [
          "maxQueued"
         ]
        },
        "_threads": {
         "oneof": [
          "threads"
         ]
        },
        "_prefillBudgetTokens": {
         "oneof": [
          "prefillBudgetTokens"
         ]
        },
        "_device": {
         "oneof": [
          "device"
         ]
        },
        "_gpuLayers": {
         "oneof": [
          "gpuLayers"
         ]
        },
        "_chatTemplate": {
         "oneof": [
          "chatTemplate"
         ]
        }
       },
       "fields": {
        "contextTokens": {
         "type": "uint32",
         "id": 1,
         "options": {
          "proto3_optional": true
         }
        },
        "kvTokens": {
         "type": "uint32",
         "id": 2,
         "options": {
          "proto3_optional": true
         }
        },
        "maxSequences": {
         "type": "uint32",
         "id": 3,
         "options": {
          "proto3_optional": true
         }
        },
        "maxQueued": {
         "type": "uint32",
         "id": 4,
         "options": {
          "proto3_optional": true
         }
        },
        "threads": {
         "type": "uint32",
         "id": 5,
         "options": {
          "proto3_optional": true
         }
        },
        "prefillBudgetTokens": {
         "type": "uint32",
         "id": 6,
         "options": {
          "proto3_optional": true
         }
        },
        "device": {
         "type": "string",
         "id": 7,
         "options": {
          "proto3_optional": true
         }
        },
        "gpuLayers": {
         "type": "int32",
         "id": 8,
         "options": {
          "proto3_optional": true
         }
        },
        "chatTemplate": {
         "type": "string",
         "id": 9,
         "options": {
          "proto3_optional": true
         }
        },
        "decoding": {
         "type": "DecodingOptions",
         "id": 10
        },
        "stageDtype": {
         "type": "string",
         "id": 11
        },
        "kvDtype": {
         "type": "string",
         "id": 12
        }
       }
      },
      "DecodingOptions": {
       "oneofs": {
        "_draftTokens": {
         "oneof": [
          "draftTokens"
         ]
        }
       },
       "fields": {
        "draftTokens": {
         "type": "uint32",
         "id": 1,
         "options": {
          "proto3_optional": true
         }
        },
        "deterministic": {
         "type": "string",
         "id": 2
        },
        "contextShift": {
         "type": "bool",
         "id": 3
        }
       }
      },
      "WorkerInference": {
       "methods": {
        "Session": {
         "requestType": "InferenceCommand",
         "requestStream": true,
         "responseType": "InferenceEvents",
         "responseStream": true
        }
       }
      },
      "InferenceCommand": {
       "oneofs": {
        "command": {
         "oneof": [
          "start",
          "cancel",
          "grant"
         ]
        }
       },
       "fields": {
        "start": {
         "type": "Start",
         "id": 1
        },
        "cancel": {
         "type": "Cancel",
         "id": 2
        },
        "grant": {
         "type": "Grant",
         "id": 3
        }
       }
      },
      "Start": {
       "oneofs": {
        "work": {
         "oneof": [
          "request",
          "embed",
          "read"
         ]
        }
       },
       "fields": {
        "id": {
         "type": "uint32",
         "id": 1
        },
        "deployment": {
         "type": "string",
         "id": 2
        },
        "request": {
         "type": "GenerateRequest",
         "id": 3
        },
        "embed": {
         "type": "EmbedRequest",
         "id": 8
        },
        "read": {
         "type": "ReadRequest",
         "id": 9
        },
        "fairKey": {
         "type": "string",
         "id": 4
        },
        "deadlineMs": {
         "type": "uint32",
         "id": 5
        },
        "priority": {
         "type": "int32",
         "id": 6
        },
        "window": {
         "type": "uint32",
         "id": 7
        },
        "cacheSalt": {
         "type": "string",
         "id": 10
        },
        "traceparent": {
         "type": "string",
         "id": 11
        },
        "holdMs": {
         "type": "uint32",
         "id": 12
        }
       }
      },
      "Cancel": {
       "fields": {
        "id": {
         "type": "uint32",
         "id": 1
        }
       }
      },
      "Grant": {
       "fields": {
        "id": {
         "type": "uint32",
         "id": 1
        },
        "events": {
         "type": "uint32",
         "id": 2
        }
       }
      },
      "GenerateRequest": {
       "oneofs": {
        "input": {
         "oneof": [
          "chat",
          "text",
          "tokens"
         ]
        },
        "_maxTokens": {
         "oneof": [
          "maxTokens"
         ]
        },
        "_topLogprobs": {
         "oneof": [
          "topLogprobs"
         ]
        },
        "_seed": {
         "oneof": [
          "seed"
         ]
        },
        "_suffix": {
         "oneof": [
          "suffix"
         ]
        },
        "_reasoningTokens": {
         "oneof": [
          "reasoningTokens"
         ]
        },
        "_deterministic": {
         "oneof": [
          "deterministic"
         ]
        }
       },
       "fields": {
        "chat": {
         "type": "ChatInput",
         "id": 1
        },
        "text": {
         "type": "string",
         "id": 2
        },
        "tokens": {
         "type": "TokenInput",
         "id": 3
        },
        "choices": {
         "type": "uint32",
         "id": 4
        },
        "maxTokens": {
         "type": "uint32",
         "id": 5,
         "options": {
          "proto3_optional": true
         }
        },
        "stop": {
         "rule": "repeated",
         "type": "string",
         "id": 6
        },
        "topLogprobs": {
         "type": "uint32",
         "id": 7,
         "options": {
          "proto3_optional": true
         }
        },
        "format": {
         "type": "string",
         "id": 8
        },
        "temperature": {
         "type": "double",
         "id": 9
        },
        "topP": {
         "type": "double",
         "id": 10
        },
        "presencePenalty": {
         "type": "double",
         "id": 11
        },
        "frequencyPenalty": {
         "type": "double",
         "id": 12
        },
        "seed": {
         "type": "uint32",
         "id": 13,
         "options": {
          "proto3_optional": true
         }
        },
        "logitBias": {
         "rule": "repeated",
         "type": "LogitBias",
         "id": 14
        },
        "topK": {
         "type": "uint32",
         "id": 15
        },
        "minP": {
         "type": "double",
         "id": 16
        },
        "repetitionPenalty": {
         "type": "double",
         "id": 17
        },
        "minTokens": {
         "type": "uint32",
         "id": 18
        },
        "ignoreEnd": {
         "type": "bool",
         "id": 19
        },
        "schema": {
         "type": "string",
         "id": 20
        },
        "toolChoice": {
         "type": "string",
         "id": 21
        },
        "toolNames": {
         "rule": "repeated",
         "type": "string",
         "id": 22
        },
        "parallelToolCalls": {
         "type": "bool",
         "id": 23
        },
        "echo": {
         "type": "bool",
         "id": 24
        },
        "suffix": {
         "type": "string",
         "id": 25,
         "options": {
          "proto3_optional": true
         }
        },
        "reasoningTokens": {
         "type": "uint32",
         "id": 26,
         "options": {
          "proto3_optional": true
         }
        },
        "deterministic": {
         "type": "bool",
         "id": 27,
         "options": {
          "proto3_optional": true
         }
        },
        "adapter": {
         "type": "Adapter",
         "id": 28
        },
        "sent": {
         "rule": "repeated",
         "type": "SentChoice",
         "id": 29
        }
       }
      },
      "SentChoice": {
       "fields": {
        "tokens": {
         "rule": "repeated",
         "type": "uint32",
         "id": 1
        },
        "characters": {
         "type": "uint32",
         "id": 2
        },
        "finished": {
         "type": "bool",
         "id": 3
        },
        "cut": {
         "type": "bool",
         "id": 4
        }
       }
      },
      "Adapter": {
       "fields": {
        "weights": {
         "type": "Weights",
         "id": 1
        },
        "scale": {
         "type": "double",
         "id": 2
        }
       }
      },
      "EmbedRequest": {
       "fields": {
        "inputs": {
         "rule": "repeated",
         "type": "EmbedInput",
         "id": 1
        }
       }
      },
      "PairInput": {
       "fields": {
        "query": {
         "type": "string",
         "id": 1
        },
        "document": {
         "type": "string",
         "id": 2
        }
       }
      },
      "EmbedInput": {
       "oneofs": {
        "input": {
         "oneof": [
          "text",
          "tokens",
          "pair"
         ]
        }
       },
       "fields": {
        "text": {
         "type": "string",
         "id": 1
        },
        "tokens": {
         "type": "TokenInput",
         "id": 2
        },
        "pair": {
         "type": "PairInput",
         "id": 3
        }
       }
      },
      "ReadRequest": {
       "oneofs": {
        "input": {
         "oneof": [
          "chat",
          "text",
          "tokens"
         ]
        }
       },
       "fields": {
        "chat": {
         "type": "ChatInput",
         "id": 1
        },
        "text": {
         "type": "string",
         "id": 2
        },
        "tokens": {
         "type": "TokenInput",
         "id": 3
        },
        "give": {
         "type": "string",
         "id": 4
        },
        "bare": {
         "type": "bool",
         "id": 5
        }
       }
      },
      "ChatInput": {
       "fields": {
        "messages": {
         "rule": "repeated",
         "type": "ChatMessage",
         "id": 1
        },
        "tools": {
         "rule": "repeated",
         "type": "Tool",
         "id": 2
        },
        "effort": {
         "type": "string",
         "id": 3
        }
       }
      },
      "Tool": {
       "fields": {
        "name": {
         "type": "string",
         "id": 1
        },
        "description": {
         "type": "string",
         "id": 2
        },
        "parameters": {
         "type": "string",
         "id": 3
        }
       }
      },
      "TokenInput": {
       "fields": {
        "tokens": {
         "rule": "repeated",
         "type": "uint32",
         "id": 1
        }
       }
      },
      "ChatMessage": {
       "oneofs": {
        "_content": {
         "oneof": [
          "content"
         ]
        },
        "_name": {
         "oneof": [
          "name"
         ]
        },
        "_toolCallId": {
         "oneof": [
          "toolCallId"
         ]
        }
       },
       "fields": {
        "role": {
         "type": "string",
         "id": 1
        },
        "content": {
         "type": "string",
         "id": 2,
         "options": {
          "proto3_optional": true
         }
        },
        "name": {
         "type": "string",
         "id": 3,
         "options": {
          "proto3_optional": true
         }
        },
        "toolCalls": {
         "rule": "repeated",
         "type": "ToolCall",
         "id": 4
        },
        "toolCallId": {
         "type": "string",
         "id": 5,
         "options": {
          "proto3_optional": true
         }
        }
       }
      },
      "ToolCall": {
       "fields": {
        "id": {
         "type": "string",
         "id": 1
        },
        "name": {
         "type": "string",
         "id": 2
        },
        "arguments": {
         "type": "string",
         "id": 3
        }
       }
      },
      "LogitBias": {
       "fields": {
        "token": {
         "type": "uint32",
         "id": 1
        },
        "bias": {
         "type": "double",
         "id": 2
        }
       }
      },
      "InferenceEvents": {
       "fields": {
        "events": {
         "rule": "repeated",
         "type": "InferenceEvent",
         "id": 1
        },
        "computed": {
         "rule": "repeated",
         "type": "uint32",
         "id": 2
        }
       }
      },
      "InferenceEvent": {
       "oneofs": {
        "event": {
         "oneof": [
          "started",
          "delta",
          "finish",
          "done",
          "failed",
          "embedding",
          "reading",
          "prompt"
         ]
        }
       },
       "fields": {
        "id": {
         "type": "uint32",
         "id": 1
        },
        "started": {
         "type": "Started",
         "id": 2
        },
        "delta": {
         "type": "Delta",
         "id": 3
        },
        "finish": {
         "type": "Finish",
         "id": 4
        },
        "done": {
         "type": "Usage",
         "id": 5
        },
        "failed": {
         "type": "Failure",
         "id": 6
        },
        "embedding": {
         "type": "Embedding",
         "id": 7
        },
        "reading": {
         "type": "Reading",
         "id": 8
        },
        "prompt": {
         "type": "Prompt",
         "id": 9
        }
       }
      },
      "Started": {
       "fields": {
        "promptTokens": {
         "type": "uint32",
         "id": 1
        },
        "cachedTokens": {
         "type": "uint32",
         "id": 2
        },
        "queuedMs": {
         "type": "double",
         "id": 3
        }
       }
      },
      "Delta": {
       "fields": {
        "choice": {
         "type": "uint32",
         "id": 1
        },
        "text": {
         "type": "string",
         "id": 2
        },
        "tokens": {
         "type": "uint32",
         "id": 3
        },
        "logprobs": {
         "rule": "repeated",
         "type": "TokenLogprob",
         "id": 4
        },
        "tokenIds": {
         "rule": "repeated",
         "type": "uint32",
         "id": 5
        },
        "cut": {
         "type": "bool",
         "id": 6
        }
       }
      },
      "Prompt": {
       "fields": {
        "text": {
         "type": "string",
         "id": 1
        },
        "logprobs": {
         "rule": "repeated",
         "type": "TokenLogprob",
         "id": 2
        }
       }
      },
      "TokenLogprob": {
       "fields": {
        "token": {
         "type": "string",
         "id": 1
        },
        "utf8": {
         "type": "bytes",
         "id": 2
        },
        "logprob": {
         "type": "double",
         "id": 3
        },
        "top": {
         "rule": "repeated",
         "type": "TokenLogprob",
         "id": 4
        }
       }
      },
      "Finish": {
       "oneofs": {
        "_stop": {
         "oneof": [
          "stop"
         ]
        }
       },
       "fields": {
        "choice": {
         "type": "uint32",
         "id": 1
        },
        "reason": {
         "type": "string",
         "id": 2
        },
        "stop": {
         "type": "string",
         "id": 3,
         "options": {
          "proto3_optional": true
         }
        }
       }
      },
      "Embedding": {
       "fields": {
        "input": {
         "type": "uint32",
         "id": 1
        },
        "values": {
         "type": "bytes",
         "id": 2
        }
       }
      },
      "Reading": {
       "oneofs": {
        "_text": {
         "oneof": [
          "text"
         ]
        }
       },
       "fields": {
        "count": {
         "type": "uint32",
         "id": 1
        },
        "tokens": {
         "rule": "repeated",
         "type": "int32",
         "id": 2
        },
        "pieces": {
         "rule": "repeated",
         "type": "string",
         "id": 3
        },
        "text": {
         "type": "string",
         "id": 4,
         "options": {
          "proto3_optional": true
         }
        }
       }
      },
      "Usage": {
       "fields": {
        "promptTokens": {
         "type": "uint32",
         "id": 1
        },
        "cachedTokens": {
         "type": "uint32",
         "id": 2
        },
        "completionTokens": {
         "type": "uint32",
         "id": 3
        },
        "reasoningTokens": {
         "type": "uint32",
         "id": 4
        }
       }
      },
      "Failure": {
       "fields": {
        "code": {
         "type": "string",
         "id": 1
        },
        "message": {
         "type": "string",
         "id": 2
        },
        "param": {
         "type": "string",
         "id": 3
        },
        "usage": {
         "type": "Usage",
         "id": 4
        }
       }
      },
      "Divisions": {
       "methods": {
        "Read": {
         "requestType": "DivisionsRequest",
         "responseType": "DivisionNotes"
        }
       }
      },
      "DivisionsRequest": {
       "fields": {}
      },
      "DivisionNotes": {
       "fields": {
        "notes": {
         "rule": "repeated",
         "type": "DivisionNote",
         "id": 1
        }
       }
      },
      "DivisionNote": {
       "fields": {
        "deployment": {
         "type": "string",
         "id": 1
        },
        "misfit": {
         "type": "string",
         "id": 2
        },
        "undivided": {
         "type": "string",
         "id": 3
        },
        "wholeBytes": {
         "type": "uint64",
         "id": 4
        }
       }
      },
      "DocumentContents": {
       "methods": {
        "Put": {
         "requestType": "ContentChunk",
         "requestStream": true,
         "responseType": "ContentStored",
         "responseStream": true
        },
        "Get": {
         "requestType": "ContentName",
         "responseType": "ContentChunk",
         "responseStream": true
        },
        "Missing": {
         "requestType": "MissingRequest",
         "responseType": "MissingContents"
        }
       }
      },
      "ContentChunk": {
       "fields": {
        "digest": {
         "type": "string",
         "id": 1
        },
        "data": {
         "type": "bytes",
         "id": 2
        }
       }
      },
      "ContentStored": {
       "fields": {}
      },
      "ContentName": {
       "fields": {
        "digest": {
         "type": "string",
         "id": 1
        }
       }
      },
      "MissingRequest": {
       "fields": {}
      },
      "MissingContents": {
       "fields": {
        "count": {
         "type": "uint64",
         "id": 1
        }
       }
      },
      "Enrollment": {
       "methods": {
        "Join": {
         "requestType": "JoinRequest",
         "responseType": "Certificates"
        },
        "Renew": {
         "requestType": "RenewRequest",
         "responseType": "Certificates"
        }
       }
      },
      "JoinRequest": {
       "fields": {
        "secret": {
         "type": "string",
         "id": 1
        },
        "role": {
         "type": "string",
         "id": 2
        },
        "name": {
         "type": "string",
         "id": 3
        },
        "csr": {
         "type": "string",
         "id": 4
        }
       }
      },
      "RenewRequest": {
       "fields": {
        "csr": {
         "type": "string",
         "id": 1
        }
       }
      },
      "Certificates": {
       "fields": {
        "certificate": {
         "type": "string",
         "id": 1
        },
        "authority": {
         "type": "string",
         "id": 2
        },
        "authorityKey": {
         "type": "string",
         "id": 3
        }
       }
      },
      "EventEntries": {
       "methods": {
        "Read": {
         "requestType": "EventRange",
         "responseType": "EventBytes"
        },
        "ReadHashes": {
         "requestType": "EventRange",
         "responseType": "EventHashes"
        }
       }
      },
      "EventRange": {
       "fields": {
        "origin": {
         "type": "string",
         "id": 1
        },
        "first": {
         "type": "uint64",
         "id": 2
        },
        "limit": {
         "type": "uint32",
         "id": 3
        }
       }
      },
      "EventBytes": {
       "fields": {
        "entries": {
         "rule": "repeated",
         "type": "bytes",
         "id": 1
        }
       }
      },
      "EventHashes": {
       "fields": {
        "hashes": {
         "type": "bytes",
         "id": 1
        }
       }
      },
      "ParameterShards": {
       "methods": {
        "Open": {
         "requestType": "OpenShard",
         "responseType": "ShardStatus"
        },
        "Status": {
         "requestType": "ShardId",
         "responseType": "ShardStatus"
        },
        "Close": {
         "requestType": "ShardId",
         "responseType": "CloseShardReply"
        },
        "ChangeMember": {
         "requestType": "ShardMember",
         "responseType": "ShardMemberClock"
        },
        "ReleaseWorker": {
         "requestType": "LostWorker",
         "responseType": "LostWorkerReply"
        },
        "Checkpoint": {
         "requestType": "CheckpointShard",
         "responseType": "ShardCheckpoint"
        },
        "ListCheckpoints": {
         "requestType": "ListShardCheckpoints",
         "responseType": "ShardCheckpointNames"
        },
        "ListCheckpointJobs": {
         "requestType": ".heddle.v1.ListCheckpointJobs",
         "responseType": "CheckpointJobs"
        },
        "ForgetJob": {
         "requestType": "ForgetJobCheckpoints",
         "responseType": "ForgetJobReply"
        },
        "Restore": {
         "requestType": "RestoreShard",
         "responseType": "ShardStatus"
        },
        "Pull": {
         "requestType": "PullParameters",
         "responseType": "ParameterChunk",
         "responseStream": true
        },
        "Push": {
         "requestType": "PushParameters",
         "responseType": "PushReply"
        },
        "AddNorm": {
         "requestType": "NormPart",
         "responseType": "NormTotal"
        },
        "Export": {
         "requestType": "ExportShard",
         "responseType": "ParameterChunk",
         "responseStream": true
        },
        "Replicate": {
         "requestType": "ReplicateShard",
         "responseType": "ShardCheckpoint"
        }
       }
      },
      "PartSource": {
       "methods": {
        "Take": {
         "requestType": "TakePart",
         "responseType": "ParameterChunk",
         "responseStream": true
        }
       }
      },
      "ShardId": {
       "fields": {
        "jobId": {
         "type": "string",
         "id": 1
        },
        "attempt": {
         "type": "uint32",
         "id": 2
        },
        "shard": {
         "type": "uint32",
         "id": 3
        }
       }
      },
      "OpenShard": {
       "fields": {
        "id": {
         "type": "ShardId",
         "id": 1
        },
        "parameters": {
         "rule": "repeated",
         "type": "TensorShape",
         "id": 2
        },
        "shards": {
         "type": "uint32",
         "id": 3
        },
        "optimizer": {
         "type": "ShardOptimizer",
         "id": 4
        },
        "consistency": {
         "type": "Consistency",
         "id": 5
        },
        "workers": {
         "type": "uint32",
         "id": 6
        },
        "jobToken": {
         "type": "bytes",
         "id": 7
        },
        "servers": {
         "rule": "repeated",
         "type": "string",
         "id": 8
        },
        "fragments": {
         "type": "uint32",
         "id": 9
        }
       }
      },
      "TensorShape": {
       "fields": {
        "name": {
         "type": "string",
         "id": 1
        },
        "shape": {
         "rule": "repeated",
         "type": "uint64",
         "id": 2
        }
       }
      },
      "ShardOptimizer": {
       "fields": {
        "kind": {
         "type": "string",
         "id": 1
        },
        "momentum": {
         "type": "double",
         "id": 2
        },
        "nesterov": {
         "type": "bool",
         "id": 3
        },
        "beta1": {
         "type": "double",
         "id": 4
        },
        "beta2": {
         "type": "double",
         "id": 5
        },
        "epsilon": {
         "type": "double",
         "id": 6
        },
        "weightDecay": {
         "type": "double",
         "id": 7
        },
        "maxGradientNorm": {
         "type": "double",
         "id": 8
        },
        "learningRate": {
         "type": "double",
         "id": 9
        }
       }
      },
      "Consistency": {
       "fields": {
        "model": {
         "type": "string",
         "id": 1
        },
        "staleness": {
         "type": "uint32",
         "id": 2
        },
        "stragglerMs": {
         "type": "uint32",
         "id": 3
        },
        "compression": {
         "type": "string",
         "id": 4
        },
        "pullCompression": {
         "type": "string",
         "id": 5
        }
       }
      },
      "ShardStatus": {
       "fields": {
        "id": {
         "type": "ShardId",
         "id": 1
        },
        "version": {
         "type": "uint64",
         "id": 2
        },
        "elements": {
         "type": "uint64",
         "id": 3
        },
        "pushes": {
         "type": "uint64",
         "id": 4
        },
        "refusedStale": {
         "type": "uint64",
         "id": 5
        },
        "refusedInvalid": {
         "type": "uint64",
         "id": 6
        },
        "stragglers": {
         "type": "uint64",
         "id": 7
        },
        "bytesPushed": {
         "type": "uint64",
         "id": 8
        },
        "bytesPulled": {
         "type": "uint64",
         "id": 9
        },
        "dataAddress": {
         "type": "string",
         "id": 10
        },
        "dataSocket": {
         "type": "string",
         "id": 11
        },
        "refusedUnauthenticated": {
         "type": "uint64",
         "id": 12
        },
        "ready": {
         "type": "bool",
         "id": 13
        },
        "dataPath": {
         "type": "string",
         "id": 14
        },
        "begunVersion": {
         "type": "uint64",
         "id": 15
        },
        "workers": {
         "type": "uint32",
         "id": 16
        },
        "departures": {
         "type": "uint32",
         "id": 17
        }
       }
      },
      "CloseShardReply": {
       "fields": {}
      },
      "CheckpointShard": {
       "fields": {
        "id": {
         "type": "ShardId",
         "id": 1
        },
        "version": {
         "type": "uint64",
         "id": 2
        },
        "name": {
         "type": "string",
         "id": 3
        },
        "keep": {
         "type": "uint32",
         "id": 4
        }
       }
      },
      "ListShardCheckpoints": {
       "fields": {
        "jobId": {
         "type": "string",
         "id": 1
        }
       }
      },
      "ShardCheckpointNames": {
       "fields": {
        "names": {
         "rule": "repeated",
         "type": "string",
         "id": 1
        }
       }
      },
      "ListCheckpointJobs": {
       "fields": {}
      },
      "CheckpointJobs": {
       "fields": {
        "jobs": {
         "rule": "repeated",
         "type": "CheckpointJob",
         "id": 1
        }
       }
      },
      "CheckpointJob": {
       "fields": {
        "jobId": {
         "type": "string",
         "id": 1
        },
        "idleMs": {
         "type": "uint64",
         "id": 2
        }
       }
      },
      "ForgetJobCheckpoints": {
       "fields": {
        "jobId": {
         "type": "string",
         "id": 1
        }
       }
      },
      "ForgetJobReply": {
       "fields": {}
      },
      "ShardCheckpoint": {
       "fields": {
        "name": {
         "type": "string",
         "id": 1
        },
        "version": {
         "type": "uint64",
         "id": 2
        },
        "bytes": {
         "type": "uint64",
         "id": 3
        },
        "sha256": {
         "type": "bytes",
         "id": 4
        }
       }
      },
      "RestoreShard": {
       "fields": {
        "open": {
         "type": "OpenShard",
         "id": 1
        },
        "name": {
         "type": "string",
         "id": 2
        },
        "sources": {
         "rule": "repeated",
         "type": "string",
         "id": 3
        },
        "pieces": {
         "type": "uint32",
         "id": 4
        }
       }
      },
      "PullParameters": {
       "fields": {
        "id": {
         "type": "ShardId",
         "id": 1
        },
        "rank": {
         "type": "uint32",
         "id": 2
        },
        "clock": {
         "type": "uint64",
         "id": 3
        },
        "held": {
         "type": "uint64",
         "id": 4
        },
        "plan": {
         "type": "string",
         "id": 5
        }
       }
      },
      "PushParameters": {
       "fields": {
        "id": {
         "type": "ShardId",
         "id": 1
        },
        "rank": {
         "type": "uint32",
         "id": 2
        },
        "clock": {
         "type": "uint64",
         "id": 3
        },
        "weight": {
         "type": "double",
         "id": 4
        },
        "learningRate": {
         "type": "double",
         "id": 5
        },
        "sources": {
         "rule": "repeated",
         "type": "string",
         "id": 6
        },
        "squares": {
         "type": "double",
         "id": 7
        },
        "plan": {
         "type": "string",
         "id": 8
        }
       }
      },
      "PushReply": {
       "fields": {
        "version": {
         "type": "uint64",
         "id": 1
        },
        "path": {
         "type": "string",
         "id": 2
        }
       }
      },
      "TakePart": {
       "fields": {
        "id": {
         "type": "ShardId",
         "id": 1
        },
        "clock": {
         "type": "uint64",
         "id": 2
        }
       }
      },
      "ShardMember": {
       "fields": {
        "id": {
         "type": "ShardId",
         "id": 1
        },
        "rank": {
         "type": "uint32",
         "id": 2
        },
        "leaves": {
         "type": "bool",
         "id": 3
        },
        "incarnation": {
         "type": "uint32",
         "id": 4
        },
        "certificate": {
         "type": "string",
         "id": 5
        }
       }
      },
      "LostWorker": {
       "fields": {
        "jobId": {
         "type": "string",
         "id": 1
        },
        "attempt": {
         "type": "uint32",
         "id": 2
        },
        "rank": {
         "type": "uint32",
         "id": 3
        },
        "incarnation": {
         "type": "uint32",
         "id": 4
        }
       }
      },
      "LostWorkerReply": {
       "fields": {}
      },
      "ShardMemberClock": {
       "fields": {
        "clock": {
         "type": "uint64",
         "id": 1
        }
       }
      },
      "NormPart": {
       "fields": {
        "id": {
         "type": "ShardId",
         "id": 1
        },
        "version": {
         "type": "uint64",
         "id": 2
        },
        "squares": {
         "type": "double",
         "id": 3
        }
       }
      },
      "NormTotal": {
       "fields": {
        "squares": {
         "type": "double",
         "id": 1
        }
       }
      },
      "ExportShard": {
       "fields": {
        "id": {
         "type": "ShardId",
         "id": 1
        },
        "checkpoint": {
         "type": "string",
         "id": 2
        }
       }
      },
      "ReplicateShard": {
       "fields": {
        "id": {
         "type": "ShardId",
         "id": 1
        },
        "checkpoint": {
         "type": "string",
         "id": 2
        },
        "source": {
         "type": "string",
         "id": 3
        },
        "keep": {
         "type": "uint32",
         "id": 4
        }
       }
      },
      "ParameterChunk": {
       "fields": {
        "version": {
         "type": "uint64",
         "id": 1
        },
        "offset": {
         "type": "uint64",
         "id": 2
        },
        "data": {
         "type": "bytes",
         "id": 3
        },
        "totalBytes": {
         "type": "uint64",
         "id": 4
        }
       }
      },
      "Raft": {
       "methods": {
        "Introduce": {
         "requestType": "Introduction",
         "responseType": "IntroductionReply"
        },
        "Progress": {
         "requestType": "ProgressRequest",
         "responseType": "ProgressReply"
        },
        "Locate": {
         "requestType": "LocateRequest",
         "responseType": "LocateReply"
        }
       }
      },
      "LocateRequest": {
       "fields": {}
      },
      "LocateReply": {
       "fields": {
        "port": {
         "type": "uint32",
         "id": 1
        }
       }
      },
      "Introduction": {
       "fields": {
        "name": {
         "type": "string",
         "id": 1
        },
        "nonce": {
         "type": "string",
         "id": 2
        },
        "address": {
         "type": "string",
         "id": 3
        },
        "peers": {
         "rule": "repeated",
         "type": "string",
         "id": 4
        },
        "member": {
         "type": "uint32",
         "id": 5
        },
        "supports": {
         "type": "uint32",
         "id": 6
        },
        "admission": {
         "type": "bytes",
         "id": 7
        },
        "secretsKeys": {
         "rule": "repeated",
         "type": "string",
         "id": 8
        }
       }
      },
      "IntroductionReply": {
       "fields": {
        "name": {
         "type": "string",
         "id": 1
        },
        "nonce": {
         "type": "string",
         "id": 2
        },
        "peers": {
         "rule": "repeated",
         "type": "string",
         "id": 3
        },
        "cluster": {
         "type": "string",
         "id": 4
        },
        "id": {
         "type": "uint32",
         "id": 5
        },
        "members": {
         "rule": "repeated",
         "type": "GroupMember",
         "id": 6
        },
        "lastId": {
         "type": "uint32",
         "id": 7
        },
        "votes": {
         "type": "bool",
         "id": 8
        },
        "supports": {
         "type": "uint32",
         "id": 9
        },
        "secretsKeys": {
         "rule": "repeated",
         "type": "string",
         "id": 10
        }
       }
      },
      "GroupMember": {
       "fields": {
        "id": {
         "type": "uint32",
         "id": 1
        },
        "name": {
         "type": "string",
         "id": 2
        },
        "address": {
         "type": "string",
         "id": 3
        },
        "nonce": {
         "type": "string",
         "id": 4
        }
       }
      },
      "ProgressRequest": {
       "fields": {}
      },
      "ProgressReply": {
       "fields": {
        "members": {
         "rule": "repeated",
         "type": "MemberProgress",
         "id": 1
        }
       }
      },
      "MemberProgress": {
       "fields": {
        "id": {
         "type": "uint32",
         "id": 1
        },
        "match": {
         "type": "uint64",
         "id": 2
        },
        "active": {
         "type": "bool",
         "id": 3
        },
        "behind": {
         "type": "bool",
         "id": 4
        }
       }
      },
      "RunningResponses": {
       "methods": {
        "Follow": {
         "requestType": "ResponseToFollow",
         "responseType": "ResponseProgress",
         "responseStream": true
        }
       }
      },
      "ResponseToFollow": {
       "fields": {
        "id": {
         "type": "string",
         "id": 1
        },
        "owner": {
         "type": "string",
         "id": 2
        },
        "from": {
         "type": "uint32",
         "id": 3
        }
       }
      },
      "ResponseProgress": {
       "fields": {
        "json": {
         "type": "bytes",
         "id": 1
        },
        "isCurrent": {
         "type": "bool",
         "id": 2
        }
       }
      }
     }
    }
   }
  },
  "grpc": {
   "nested": {
    "health": {
     "nested": {
      "v1": {
       "nested": {
        "Health": {
         "methods": {
          "Check": {
           "requestType": "HealthCheckRequest",
           "responseType": "HealthCheckResponse"
          },
          "Watch": {
           "requestType": "HealthCheckRequest",
           "responseType": "HealthCheckResponse",
           "responseStream": true
          }
         }
        },
        "HealthCheckRequest": {
         "fields": {
          "service": {
           "type": "string",
           "id": 1
          }
         }
        },
        "HealthCheckResponse": {
         "fields": {
          "status": {
           "type": "ServingStatus",
           "id": 1
          }
         },
         "nested": {
          "ServingStatus": {
           "values": {
            "UNKNOWN": 0,
            "SERVING": 1,
            "NOT_SERVING": 2,
            "SERVICE_UNKNOWN": 3
           }
          }
         }
        }
       }
      }
     }
    }
   }
  }
 }
}`;
