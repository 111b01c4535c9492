RuleSet: Search(name, code, type, text)
* url = "https://cuvil.org/fhir/SearchParameter/{code}"
* version = "1.0.0"
* name = "{name}"
* status = #active
* description = "{text}"
* code = #{code}
* base = #DeviceDefinition
* type = #{type}
* processingMode = #normal

Instance: model-purpose
InstanceOf: SearchParameter
Usage: #definition
* insert Search(ModelPurpose, model-purpose, string, [[Intended use of a model version.]])
* expression = "DeviceDefinition.guideline.intendedUse | DeviceDefinition.description"

Instance: input-profile
InstanceOf: SearchParameter
Usage: #definition
* insert Search(InputProfile, input-profile, string, [[Name, type or shape of an input.]])
* expression = "DeviceDefinition.property.where(type.coding.where(system = 'https://cuvil.org/fhir/CodeSystem/model-property' and code = 'inputProfile').exists()).value.ofType(string)"

Instance: artifact-status
InstanceOf: SearchParameter
Usage: #definition
* insert Search(ArtifactStatus, artifact-status, token, [[Whether a model version or engine is active or retired.]])
* expression = "DeviceDefinition.modifierExtension.where(url = 'http://hl7.org/fhir/StructureDefinition/artifact-status').value.ofType(code)"

Instance: model-text
InstanceOf: SearchParameter
Usage: #definition
* insert Search(ModelText, model-text, string, [[Name, version, intended use or manufacturer of a model version.]])
* expression = "DeviceDefinition.deviceName.name | DeviceDefinition.modelNumber | DeviceDefinition.guideline.intendedUse | DeviceDefinition.description | DeviceDefinition.manufacturer.display"
