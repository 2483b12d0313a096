/** Versions of the control plane and of the agents. */
import { useApiList, useApiQuery } from '../../api/queries.ts';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { Facts } from '../../ui/data.tsx';
import { Panel } from '../../ui/layout.tsx';
import { Code } from '../../ui/text.tsx';

export function Versions() {
  const version = useApiQuery('version', {});
  const nodes = useApiList('listNodes', { query: { limit: 200 } });
  const agents = new Set(nodes.items.map(({ agent_version }) => agent_version ?? 'contract only'));
  return (
    <Panel title="Versions" id="versions">
      <QueryBoundary query={version} what="the versions">
        {(answer) => (
          <Facts
            items={[
              ['Berth', answer.version],
              answer.commit === null ? null : ['Commit', <Code key="c">{answer.commit}</Code>],
              ['Node.js', answer.node],
              ['Schema', answer.schema],
              ['Oldest agent', answer.oldest_agent],
              ['Agents', [...agents].join(', ')],
            ]}
          />
        )}
      </QueryBoundary>
    </Panel>
  );
}
