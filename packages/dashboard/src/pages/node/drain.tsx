/** The progress of a drain. */
import type { Drain, Node } from '@berth/wire/node';
import { ProjectLink } from '../../parts/links.tsx';
import { Ago } from '../../parts/time.tsx';
import { countText } from '../../parts/time-text.ts';
import { Progress } from '../../ui/feedback.tsx';
import { Column, Panel } from '../../ui/layout.tsx';
import { Text } from '../../ui/text.tsx';

export function DrainPanel({ node }: { node: Node }) {
  if (node.drain === undefined || node.drain === null) return null;
  const { moved, left: waiting, started_at, finished_at } = node.drain;
  return (
    <Panel title="Drain" id="drain">
      <Column gap="sm">
        <Text>
          {countText(moved, 'project')} moved, {waiting.length} left, begun <Ago at={started_at} />
          {finished_at !== null && ', done'}
        </Text>
        <Progress label="Drain" value={(moved / Math.max(1, moved + waiting.length)) * 100} />
        {waiting.map((row) => (
          <WaitingProject
            key={`${row.deployment_id} ${row.unmanaged_container ?? row.run ?? ''}`}
            row={row}
          />
        ))}
      </Column>
    </Panel>
  );
}

function WaitingProject({ row }: { row: Drain['left'][number] }) {
  const { project, unmanaged_container: container } = row;
  // The panel below shows the commands. Show no link, because the project might have been deleted.
  if (container !== undefined)
    return <Text>{`${container} of ${project}: waits until it is removed by hand`}</Text>;
  return (
    <Text>
      <ProjectLink name={project} />: {row.problem ?? (row.moving_to === null ? 'waits' : 'moving')}
    </Text>
  );
}
