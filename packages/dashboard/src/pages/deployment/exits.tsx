/** Ended containers of a deployment, each with its last lines of output. */
import type { Deployment } from '@berth/wire/deployment';
import type { AnswerOf } from '@berth/wire/routes';
import { useApiQuery } from '../../api/queries.ts';
import { LogView } from '../../parts/log-view.tsx';
import { Ago } from '../../parts/time.tsx';
import { Column, Panel } from '../../ui/layout.tsx';
import { Code, Text } from '../../ui/text.tsx';

type ContainerExit = AnswerOf<'deploymentExits'>['items'][number];

export function ContainerExits({ deployment }: { deployment: Deployment }) {
  const { data } = useApiQuery('deploymentExits', { params: { id: deployment.id } });
  const exits = data?.items ?? [];
  if (exits.length === 0) return null;
  const hasSeveral = new Set(exits.map(instanceOf)).size > 1;
  return (
    <Panel flush title="Ends of its containers" id="ends">
      {exits.map((exit) => (
        <Column key={`${exit.container} ${exit.finished_at ?? ''}`} gap="xs">
          <div style={{ padding: '8px 16px' }}>
            <ExitText exit={exit} instance={hasSeveral ? instanceOf(exit) : null} />
          </div>
          <LogView
            lines={exit.lines.map((line, index) => ({ key: String(index), ...line }))}
            label={`Last lines of ${exit.container}`}
            follow={false}
            file={`${exit.container}.log`}
          />
        </Column>
      ))}
    </Panel>
  );
}

const instanceOf = ({ process = 'web', instance = 1 }: ContainerExit): string =>
  `${process} ${instance}`;

/** `instance`: null if all ends are of one instance. */
const ExitText = ({ exit, instance }: { exit: ContainerExit; instance: string | null }) => (
  <Text>
    <Code>{exit.container}</Code>
    {instance !== null && ` (${instance})`}{' '}
    {exit.exit_code === null
      ? 'was removed while it ran'
      : `ended with exit code ${exit.exit_code}`}
    {exit.out_of_memory && ', out of memory'}
    {exit.finished_at !== null && (
      <>
        , <Ago at={exit.finished_at} />
      </>
    )}
  </Text>
);
