# The router of Rails, for Puma.
require "logger"
require "action_dispatch"

answer = ->(name) { ->(_) { [200, { "content-type" => "text/plain" }, [name]] } }
routes = ActionDispatch::Routing::RouteSet.new
routes.draw do
  match "/v1/token", to: answer["token"], via: :all
  match "/admin/*rest", to: answer["admin"], via: :all, format: false
  match "*rest", to: answer["other"], via: :all, format: false
  match "/", to: answer["other"], via: :all
end
run routes
