/** The steps of a deployment with their durations. The duration of a running step counts up. */
import type { CopyProgress } from '@berth/wire/dataset';
import type { Deployment } from '@berth/wire/deployment';
import { sizeText } from '@berth/wire/size-text';
import { useNow } from '../../parts/time.tsx';
import { durationText } from '../../parts/time-text.ts';
import { Progress } from '../../ui/feedback.tsx';
import { Panel } from '../../ui/layout.tsx';
import { type Mark, Status } from '../../ui/status.tsx';
import { Text } from '../../ui/text.tsx';

const WORDS: Record<string, string> = {
  queue: 'waited',
  build: 'build',
  place: 'placement',
  copy: 'data',
  start: 'start',
  route: 'route',
};

export function Steps({ deployment }: { deployment: Deployment }) {
  const now = Math.max(useNow(), Date.now());
  if (deployment.phases.length === 0) return null;
  return (
    <Panel title="Steps" id="steps">
      <ol
        className="ladder"
        style={{ gridTemplateColumns: 'repeat(auto-fit, minmax(150px, 176px))' }}
      >
        {deployment.phases.map((phase, index) => (
          <li key={phase.name}>
            <Status mark={markOf(deployment, index)}>{WORDS[phase.name] ?? phase.name}</Status>
            <span className="when">{durationText(lengthOf(phase, deployment, now))}</span>
          </li>
        ))}
      </ol>
      {deployment.progress?.datasets.map((copy) => (
        <CopyOfDataset key={copy.dataset_id} copy={copy} />
      ))}
    </Panel>
  );
}

/** Returns the mark of a step. In a failed deployment, the last step is the one that failed. */
function markOf({ phases, status, finished_at }: Deployment, index: number): Mark {
  const isLast = index === phases.length - 1;
  if (isLast && status === 'failed') return 'bad';
  if (isLast && (status === 'cancelled' || status === 'superseded')) return 'off';
  if (phases[index]?.ended_at !== null) return 'ok';
  return finished_at === null ? 'busy' : 'bad';
}

/** Returns the duration of a step in ms. A step without an end ends with its deployment. */
function lengthOf(
  phase: Deployment['phases'][number],
  { finished_at }: Deployment,
  now: number,
): number {
  const deploymentEnd = finished_at === null ? now : Math.min(now, Date.parse(finished_at));
  const end = phase.ended_at === null ? deploymentEnd : Date.parse(phase.ended_at);
  return end - Date.parse(phase.started_at);
}

const CopyOfDataset = ({ copy }: { copy: CopyProgress }) => (
  <div style={{ display: 'grid', gap: 6, marginTop: 12 }}>
    <Text>
      {copy.name} version {copy.version}: {copy.step}, {sizeText(copy.bytes_done)} of{' '}
      {sizeText(copy.bytes_total)}
    </Text>
    <Progress
      label={`Copy of ${copy.name}`}
      value={copy.bytes_total === 0 ? 100 : (copy.bytes_done / copy.bytes_total) * 100}
    />
  </div>
);
