/** The reason of a failed deployment, and the version that visitors get now. */
import type { Deployment } from '@berth/wire/deployment';
import { errorSentence } from '@berth/wire/error-sentence';
import { type Project, restWord } from '@berth/wire/project';
import { useApiQuery } from '../../api/queries.ts';
import { commitText } from '../../parts/deployments.tsx';
import { Note } from '../../ui/feedback.tsx';
import { Column } from '../../ui/layout.tsx';
import { OutLink, PageLink, Text } from '../../ui/text.tsx';

type FailureNoteProps = { deployment: Deployment; project: Project | undefined };
export function FailureNote({ deployment: { error }, project }: FailureNoteProps) {
  if (error === null) return null;
  return (
    <Note tone="bad" title="Why it failed">
      <Column gap="xs">
        <Text strong>{errorSentence(error.message)}</Text>
        {error.message.trim().includes('\n') && (
          <Text size="xs" mono lines>
            {error.message}
          </Text>
        )}
        <Text size="xs" tone="quiet">
          {error.code} · <OutLink href={`/docs/errors#failure-${error.code}`}>what to do</OutLink>
        </Text>
        {project !== undefined && <StillServes project={project} />}
      </Column>
    </Note>
  );
}

/** Shows which version visitors get now, because people ask that first after a failure. */
function StillServes({ project }: { project: Project }) {
  const id = project.running_deployment_id;
  const { data: running } = useApiQuery(
    'getDeployment',
    { params: { id: id ?? '' } },
    { enabled: id !== null },
  );
  if (id === null) return <Text>No version of this project serves.</Text>;
  if (project.stopped)
    return <Text>The project is {restWord(project)}; visitors get a page that says so.</Text>;
  if (running === undefined) return null;
  return (
    <Text>
      Visitors still get{' '}
      <PageLink to="/deployments/$id" params={{ id }}>
        {`deployment #${running.generation}`}
      </PageLink>
      , {commitText(running)}.
    </Text>
  );
}
