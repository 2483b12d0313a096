/**
 * Payload and result of a `run` task: a command in a container of its own, from the image of a
 * release. The container has no port, no restart policy and no place in a route.
 */
import { type Static, Type } from 'typebox';
import { DatasetMount } from './dataset.ts';
import { SECRET_DELIVERIES } from './secret.ts';
import { Id, ImageDigest, literals, orNull } from './vocabulary.ts';
import { VolumeMounts } from './volume.ts';

/** Capability of an agent that can run commands in containers of their own. */
export const CAN_RUN = 'runs';
/** Capability of an agent that can send a person's standard input to the command of a run. */
export const CAN_RUN_INPUT = 'run-input';

/** Limits of a command: number of words, and length of one word in characters. */
export const MAX_COMMAND_WORDS = 100;
export const MAX_COMMAND_WORD = 16_384;

/** A command without a shell; it replaces ENTRYPOINT and CMD of the image. */
export const Command = Type.Array(
  Type.String({ minLength: 1, maxLength: MAX_COMMAND_WORD, pattern: '^[^\\u0000]*$' }),
  {
    minItems: 1,
    maxItems: MAX_COMMAND_WORDS,
    description: 'program and arguments, started without a shell',
  },
);

export const RunPayload = Type.Object({
  run_id: Id,
  project_id: Id,
  project: Type.String({ description: 'the project’s name' }),
  image: Type.String({ description: '{registry}/{project}@sha256:…' }),
  image_tag: Type.String(),
  image_digest: orNull(ImageDigest),
  container_name: Type.String({ description: 'run-{project}-{first letters of the id}' }),
  command: Command,
  env: Type.Record(Type.String(), Type.String()),
  secrets: Type.Optional(
    Type.Array(Type.Object({ name: Type.String(), as: literals(SECRET_DELIVERIES) }), {
      description: 'secrets of the container; the claim (`/start`) answers their values',
    }),
  ),
  datasets: Type.Array(DatasetMount),
  volumes: Type.Optional(VolumeMounts),
  memory_bytes: orNull(Type.Integer()),
  cpus: orNull(Type.Number()),
  devices: Type.Optional(
    Type.Array(Type.String(), {
      description:
        'CDI devices of the container, such as `nvidia.com/gpu=0`; sent only to agents with the ' +
        'capability `run-devices`',
    }),
  ),
  again: Type.Optional(
    Type.Boolean({
      description:
        'true: an earlier task of this run was claimed, so its command might have started; the ' +
        'agent goes on with its container',
    }),
  ),
  stdin: Type.Optional(
    Type.Boolean({
      description:
        'true: the command starts when a session with its standard input is there; the session ' +
        'comes as an exec session does',
    }),
  ),
  timeout_seconds: Type.Integer({
    minimum: 1,
    description: 'time limit in seconds, from the start of the command',
  }),
  stop_grace_seconds: Type.Integer({
    minimum: 0,
    description: 'seconds between SIGTERM and SIGKILL at a cancellation or at the time limit',
  }),
});
export type RunPayload = Static<typeof RunPayload>;

/**
 * `result` of the report. The task is `completed` if the command ended by itself, with any exit
 * code. 127: the program does not exist in the image.
 */
export type RunResult = { exit_code: number; out_of_memory: boolean };

/** Returns whether a process can end with this code. An agent can send any value. */
export const isExitCode = (code: unknown): code is number =>
  Number.isInteger(code) && (code as number) >= 0 && (code as number) <= 255;
