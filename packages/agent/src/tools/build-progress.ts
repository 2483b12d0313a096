/**
 * What buildx says while it builds, as log lines with the name of their step and, in the end, which step failed.
 * Two dialects: `rawjson` (one JSON document a line) and `plain` (`#5 [2/4] RUN …`), which older ones only have.
 */
import type { LogLineIn } from '@berth/wire/task';

export type BuildLine = { stream: LogLineIn['stream']; step: string | null; text: string };
export type FailedStep = { step: string; error: string; output: readonly string[] };
export type ProgressReader = {
  /** One line of the builder's standard error. */
  read(line: string): void;
  failed(): FailedStep | null;
};

const KEPT_OUTPUT = 12;
const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;

type Step = { name: string; output: string[]; said: boolean; ended: boolean };
type Emit = (line: BuildLine) => void;

/** "pushing {the whole tag} with docker" is the one name that is longer than what it says. */
const stepName = (name: string): string => (/^pushing \S+ with docker$/.test(name) ? 'push' : name.slice(0, 300));

/** What the builder does for itself is not worth a line, unless it fails. */
const isInternal = (name: string): boolean => name.startsWith('[internal]') || name.startsWith('[auth]');

function tell(step: Step, emit: Emit, what: string): void {
  if (!isInternal(step.name)) emit({ stream: 'system', step: step.name, text: what });
}
function output(step: Step, emit: Emit, stream: 'stdout' | 'stderr', text: string): void {
  step.output.push(text);
  if (step.output.length > KEPT_OUTPUT) step.output.shift();
  emit({ stream, step: step.name, text });
}

type Vertex = { digest: string; name: string; started?: string; completed?: string; cached?: boolean; error?: string };
type RawProgress = {
  vertexes?: Vertex[] | null;
  logs?: { vertex: string; stream: number; data: string }[] | null;
  warnings?: { vertex: string; short?: string }[] | null;
};

export function rawJsonReader(emit: Emit): ProgressReader {
  const steps = new Map<string, Step & { rest: Record<number, string> }>();
  let failed: FailedStep | null = null;

  const stepOf = (digest: string, name: string): Step & { rest: Record<number, string> } => {
    const known = steps.get(digest);
    if (known !== undefined) return known;
    const step = { name: stepName(name), output: [], said: false, ended: false, rest: {} };
    steps.set(digest, step);
    return step;
  };
  const onVertex = (v: Vertex): void => {
    const step = stepOf(v.digest, v.name);
    step.name = stepName(v.name);
    if (!step.said && (v.started !== undefined || v.cached === true)) {
      step.said = true;
      if (v.cached !== true) tell(step, emit, step.name);
    }
    if (v.completed === undefined || step.ended) return;
    step.ended = true;
    for (const [stream, text] of Object.entries(step.rest)) if (text !== '') output(step, emit, stream === '2' ? 'stderr' : 'stdout', text);
    if (v.error !== undefined && v.error !== '') {
      // "context canceled" is the echo of the failure in steps that ran beside it.
      if (!/context canceled/.test(v.error) || failed === null)
        failed =
          failed !== null && !/context canceled/.test(failed.error)
            ? failed
            : { step: step.name, error: v.error, output: [...step.output] };
      emit({ stream: 'system', step: step.name, text: `failed: ${v.error}` });
    } else
      tell(
        step,
        emit,
        v.cached === true ? `${step.name} (cached)` : `done in ${seconds(Date.parse(v.completed) - Date.parse(v.started ?? v.completed))}`,
      );
  };

  return {
    failed: () => failed,
    read(line) {
      let progress: RawProgress;
      try {
        progress = JSON.parse(line) as RawProgress;
      } catch {
        // Not progress but a word of the docker command itself ("ERROR: …", a warning): for people, as it is.
        if (line.trim() !== '') emit({ stream: 'stderr', step: null, text: line });
        return;
      }
      for (const log of progress.logs ?? []) {
        const step = stepOf(log.vertex, log.vertex);
        const pieces = ((step.rest[log.stream] ?? '') + Buffer.from(log.data, 'base64').toString('utf8')).split(/\r?\n/);
        step.rest[log.stream] = pieces.pop() ?? '';
        for (const text of pieces) output(step, emit, log.stream === 2 ? 'stderr' : 'stdout', text);
      }
      for (const v of progress.vertexes ?? []) onVertex(v);
      for (const w of progress.warnings ?? []) {
        const text = Buffer.from(w.short ?? '', 'base64').toString('utf8');
        if (text !== '') emit({ stream: 'system', step: steps.get(w.vertex)?.name ?? null, text: `warning: ${text}` });
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
        // After the steps the command repeats the failure as a block; the line that says it is kept.
        if (line.startsWith('ERROR:') || line.startsWith('WARNING:')) emit({ stream: 'stderr', step: null, text: line });
        return;
      }
      const known = steps.get(number);
      if (known === undefined) {
        const step: Step = { name: stepName(text), output: [], said: true, ended: false };
        steps.set(number, step);
        return tell(step, emit, step.name);
      }
      // A step that is shown again, because another spoke in between.
      if (stepName(text) === known.name || text === '...') return;
      const error = /^ERROR: (.*)$/.exec(text)?.[1];
      if (error !== undefined) {
        failed ??= { step: known.name, error, output: [...known.output] };
        return emit({ stream: 'system', step: known.name, text: `failed: ${error}` });
      }
      if (/^(DONE [\d.]+s|CACHED|CANCELED)$/.test(text)) return tell(known, emit, text.toLowerCase());
      output(known, emit, 'stdout', text.replace(/^\d+\.\d+ /, ''));
    },
  };
}
