/** The instances that are assigned to a node, including those that its agent does not report. */
import type { Node } from '@berth/wire/node';
import { useApiList } from '../../api/queries.ts';
import { Empty } from '../../parts/command.tsx';
import { InstancesOnNode } from '../../parts/instances.tsx';
import { More } from '../../parts/more.tsx';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { Panel } from '../../ui/layout.tsx';

export function NodeInstances({ node }: { node: Node }) {
  const list = useApiList('listInstances', {
    query: { node_id: node.id, limit: 200 },
  });
  return (
    <Panel flush title="Instances" id="instances">
      <QueryBoundary query={list.query} what="the instances">
        {() => (
          <>
            {list.items.length === 0 ? (
              <Empty>No instance of a project is here.</Empty>
            ) : (
              <InstancesOnNode instances={list.items} />
            )}
            <More list={list} />
          </>
        )}
      </QueryBoundary>
    </Panel>
  );
}
