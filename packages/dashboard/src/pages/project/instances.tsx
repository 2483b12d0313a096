/** The instances of a project, and how many of them run. */
import type { Deployment } from '@berth/wire/deployment';
import { whyOnlyOne } from '@berth/wire/can';
import { hasWeb, MAX_COUNT, type Project, restsAtZero } from '@berth/wire/project';
import { useState } from 'react';
import { useApiMutation } from '../../api/mutations.ts';
import { useApiQuery } from '../../api/queries.ts';
import { Command } from '../../parts/command.tsx';
import { countOf, servingText } from '../../parts/instance-text.ts';
import { InstancesOfProject } from '../../parts/instances.tsx';
import { useProjectReasons } from '../../parts/permissions.ts';
import { fieldErrors, FormProblem } from '../../parts/problem.tsx';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { Button } from '../../ui/controls.tsx';
import { NumberField } from '../../ui/fields.tsx';
import { Column, Panel, Row } from '../../ui/layout.tsx';
import { Text } from '../../ui/text.tsx';

const WEB = 'web';

export function Instances({ project }: { project: Project }) {
  const id = project.running_deployment_id;
  const running = useApiQuery(
    'getDeployment',
    { params: { id: id ?? '' } },
    { enabled: id !== null && !project.stopped },
  );
  return (
    <Panel title="Instances" id="instances" actions={<Command words={['ps', project.name]} />}>
      <Column gap="sm">
        {project.processes.map(({ name }) => (
          <ScaleForm key={`${name} ${countOf(project, name)}`} project={project} process={name} />
        ))}
        {id === null || project.stopped ? (
          <Text tone="quiet">{whenCountApplies(project)}</Text>
        ) : (
          <QueryBoundary query={running} what="the instances">
            {(deployment) => <RunningInstances project={project} deployment={deployment} />}
          </QueryBoundary>
        )}
      </Column>
    </Panel>
  );
}

export const whenCountApplies = (
  project: Pick<Project, 'processes' | 'stopped' | 'stopped_by_person'>,
): string => {
  if (restsAtZero(project))
    return 'The project is scaled to 0: its address answers 503 until you scale it up.';
  return project.stopped
    ? 'The project is stopped. The number takes effect when you start it.'
    : 'Nothing runs yet. The number takes effect with the first deployment.';
};

type RunningProps = { project: Project; deployment: Deployment };
/**
 * Shows the table only for several instances: the top of the page already describes a single one.
 */
function RunningInstances({ project, deployment: { instances } }: RunningProps) {
  const wanted = countOf(project);
  return (
    <>
      <Text tone="quiet">
        {hasWeb(project)
          ? servingText(instances, wanted)
          : 'The project has no process web, so its address answers 503'}
        .
      </Text>
      {(instances.length > 1 || wanted > 1 || !hasWeb(project)) && (
        <InstancesOfProject instances={instances} />
      )}
    </>
  );
}

/** Returns why the number cannot be set, as the end of a sentence; null if it can. */
export function whyNotCount(
  count: number | null,
  project: Pick<Project, 'processes'>,
  process = WEB,
) {
  if (count === null) return 'enter a number';
  if (!Number.isInteger(count) || count < 0 || count > MAX_COUNT)
    return `enter a whole number from 0 to ${MAX_COUNT}`;
  return count === countOf(project, process) ? 'it has this number already' : null;
}

/** Returns why a project can have one instance only, in words; null if it can have more. */
export function onlyOneText(project: Parameters<typeof whyOnlyOne>[0]): string | null {
  const why = whyOnlyOne(project);
  return why === null ? null : `${why}, so it can have one instance only: two would write at once`;
}

/** `process`: its name. The label names it if the project has several. */
function ScaleForm({ project, process }: { project: Project; process: string }) {
  const [count, setCount] = useState<number | null>(countOf(project, process));
  const scale = useApiMutation('scaleProject');
  const errors = fieldErrors(scale.error);
  const tooMany = count !== null && count > 1 ? onlyOneText(project) : null;
  const reason =
    useProjectReasons(project)('scale') ?? tooMany ?? whyNotCount(count, project, process);
  const send = (): void => {
    if (reason !== null || scale.busy || count === null) return;
    void scale.run({ params: { id: project.id }, body: { [process]: count } });
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <Row align="end">
        <NumberField
          label={
            project.processes.length === 1
              ? 'Number of instances'
              : `Number of instances of ${process}`
          }
          help="takes effect at once, without a deployment"
          value={count}
          onChange={setCount}
          min={0}
          max={MAX_COUNT}
          error={errors[process]}
        />
        <Button type="submit" reason={reason} busy={scale.busy}>
          Scale
        </Button>
      </Row>
      <FormProblem error={scale.error} what="The change" fields={[process]} />
    </form>
  );
}
