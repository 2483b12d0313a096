/**
 * Reads the output of `docker buildx build`: turns it into log lines with the name of their step,
 * and remembers the step that failed. Supports two formats: `rawjson` (one JSON document per line),
 * and `plain` (`#5 [2/4] RUN …`) for older versions of buildx.
 */
import { createLines, cutLine, lastState, type Lines, MAX_LINE } from '@berth/kit/lines';
import type { LogLineIn } from '@berth/wire/task';

export type BuildLine = { stream: LogLineIn['stream']; step: string | null; text: string };
export type FailedStep = { step: string; error: string; output: readonly string[] };
export type ProgressReader = {
  /** Reads one line of the builder's standard error. */
  read(line: string): void;
  failed(): FailedStep | null;
};

/**
 * Maximum length of a builder message, in characters. BuildKit splits a message when its output
 * exceeds 1 MiB, which is 1.4 million characters of base64. A longer message is replaced by a log
 * line that says it is missing.
 */
export const MAX_MESSAGE = 4 * 1024 * 1024;
const LONG_MESSAGE =
  'a message of the builder was longer than 4 MiB; its output is missing in this log';
const KEPT_OUTPUT = 12;
const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;

type Step = { name: string; output: string[]; announced: boolean; ended: boolean };
type Emit = (line: BuildLine) => void;

/**
 * Shortens "pushing {tag} with docker", a name that repeats the tag, and every name above 300
 * characters.
 */
const stepName = (name: string): string =>
  /^pushing \S+ with docker$/.test(name) ? 'push' : name.slice(0, 300);

/** Tells whether a step is internal to the builder. Such a step is logged only if it fails. */
const isInternal = (name: string): boolean =>
  name.startsWith('[internal]') || name.startsWith('[auth]');

function logSystem(step: Step, emit: Emit, text: string): void {
  if (!isInternal(step.name)) emit({ stream: 'system', step: step.name, text });
}
function output(step: Step, emit: Emit, stream: 'stdout' | 'stderr', text: string): void {
  step.output.push(text);
  if (step.output.length > KEPT_OUTPUT) step.output.shift();
  emit({ stream, step: step.name, text });
}

type Vertex = {
  digest: string;
  name: string;
  started?: string;
  completed?: string;
  cached?: boolean;
  error?: string;
};
type RawProgress = {
  vertexes?: Vertex[] | null;
  logs?: { vertex: string; stream: number; data: string }[] | null;
  warnings?: { vertex: string; short?: string }[] | null;
};

/** Splits the output of one stream of a step, which arrives in several messages, into lines. */
const linesOf = (onText: (text: string) => void): Lines =>
  createLines({
    onLine(line) {
      const { text, missing } = line.read();
      onText(cutLine(text, MAX_LINE, missing));
    },
  });

export function rawJsonReader(emit: Emit): ProgressReader {
  type RawStep = Step & { streams: Record<'stdout' | 'stderr', Lines> };
  const steps = new Map<string, RawStep>();
  let failed: FailedStep | null = null;

  const stepOf = (digest: string, name: string): RawStep => {
    const existing = steps.get(digest);
    if (existing !== undefined) return existing;
    const step: RawStep = {
      name: stepName(name),
      output: [],
      announced: false,
      ended: false,
      streams: {
        stdout: linesOf((text) => output(step, emit, 'stdout', text)),
        stderr: linesOf((text) => output(step, emit, 'stderr', text)),
      },
    };
    steps.set(digest, step);
    return step;
  };
  const onVertex = (v: Vertex): void => {
    const step = stepOf(v.digest, v.name);
    step.name = stepName(v.name);
    if (!step.announced && (v.started !== undefined || v.cached === true)) {
      step.announced = true;
      if (v.cached !== true) logSystem(step, emit, step.name);
    }
    if (v.completed === undefined || step.ended) return;
    step.ended = true;
    step.streams.stdout.end();
    step.streams.stderr.end();
    if (v.error !== undefined && v.error !== '') {
      // Ignore "context canceled": when one step fails, the steps that run beside it report this
      // error.
      if (!/context canceled/.test(v.error) || failed === null)
        failed =
          failed !== null && !/context canceled/.test(failed.error)
            ? failed
            : { step: step.name, error: v.error, output: [...step.output] };
      emit({ stream: 'system', step: step.name, text: `failed: ${v.error}` });
    } else
      logSystem(
        step,
        emit,
        v.cached === true
          ? `${step.name} (cached)`
          : `done in ${seconds(Date.parse(v.completed) - Date.parse(v.started ?? v.completed))}`,
      );
  };

  return {
    failed: () => failed,
    read(line) {
      let progress: RawProgress;
      try {
        progress = JSON.parse(line) as RawProgress;
      } catch {
        if (line.startsWith('{'))
          return emit({
            stream: 'system',
            step: null,
            text: LONG_MESSAGE,
          });
        // Log a line of the docker command itself ("ERROR: …", a warning) unchanged.
        if (line.trim() !== '') emit({ stream: 'stderr', step: null, text: line });
        return;
      }
      for (const log of progress.logs ?? []) {
        const { streams } = stepOf(log.vertex, log.vertex);
        streams[log.stream === 2 ? 'stderr' : 'stdout'].add(Buffer.from(log.data, 'base64'));
      }
      for (const v of progress.vertexes ?? []) onVertex(v);
      for (const w of progress.warnings ?? []) {
        const text = Buffer.from(w.short ?? '', 'base64').toString('utf8');
        if (text !== '')
          emit({
            stream: 'system',
            step: steps.get(w.vertex)?.name ?? null,
            text: `warning: ${text}`,
          });
      }
    },
  };
}

export function plainReader(emit: Emit): ProgressReader {
  const steps = new Map<string, Step>();
  let failed: FailedStep | null = null;
  return {
    failed: () => failed,
    read(line) {
      const match = /^#(\d+) (.*)$/.exec(line);
      const [, number, text] = match ?? [];
      if (number === undefined || text === undefined) {
        // After the steps, the command repeats the failure as a block. Log only its ERROR or
        // WARNING line.
        if (line.startsWith('ERROR:') || line.startsWith('WARNING:'))
          emit({ stream: 'stderr', step: null, text: line });
        return;
      }
      const existing = steps.get(number);
      if (existing === undefined) {
        const step: Step = { name: stepName(text), output: [], announced: true, ended: false };
        steps.set(number, step);
        return logSystem(step, emit, step.name);
      }
      // When output of different steps alternates, the builder repeats the header of a step.
      if (stepName(text) === existing.name || text === '...') return;
      const error = /^ERROR: (.*)$/.exec(text)?.[1];
      if (error !== undefined) {
        failed ??= { step: existing.name, error, output: [...existing.output] };
        return emit({ stream: 'system', step: existing.name, text: `failed: ${error}` });
      }
      if (/^(DONE [\d.]+s|CACHED|CANCELED)$/.test(text))
        return logSystem(existing, emit, text.toLowerCase());
      output(existing, emit, 'stdout', lastState(text.replace(/^\d+\.\d+ /, '')));
    },
  };
}
