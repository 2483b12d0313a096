/** Links to the page of a resource, for example a project. */
import type { ReactNode } from 'react';
import { PageLink } from '../ui/text.tsx';

/** `name`: the name or id of the resource. Without children, the link shows `name`. */
type LinkProps = { name: string; children?: ReactNode };

export const ProjectLink = ({ name, children = name }: LinkProps) => (
  <PageLink to="/projects/$name" params={{ name }} size="sm">
    {children}
  </PageLink>
);

export const NodeLink = ({ name, children = name }: LinkProps) => (
  <PageLink to="/nodes/$name" params={{ name }} size="sm">
    {children}
  </PageLink>
);

export const DatasetLink = ({ name, children = name }: LinkProps) => (
  <PageLink to="/datasets/$name" params={{ name }} size="sm">
    {children}
  </PageLink>
);

export const DeploymentLink = ({ id, children }: { id: string; children: ReactNode }) => (
  <PageLink to="/deployments/$id" params={{ id }} size="sm">
    {children}
  </PageLink>
);
